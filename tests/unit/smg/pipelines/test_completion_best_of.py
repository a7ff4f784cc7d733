"""BestOfSink: the likeliest candidates of each prompt come out, in order, and nothing else."""

import pytest

from smg.errors import EngineError
from smg.parsers.events import Content
from smg.pipelines.best_of import BestOfSink
from smg.pipelines.sinks import AnswerHead, ChoiceFinish, UsageCounter
from smg_proto.common.v1 import common_pb2

HEAD = AnswerHead("a", 1, "m", "grpc://w:1", UsageCounter())


class Log:
    """A sink that remembers its calls."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))

    def texts(self):
        return [
            (call[1], "".join(piece.text for piece in call[2])) for call in self.calls if call[0] == "pieces"
        ]


def entries(*logprobs):
    return [common_pb2.TokenLogprob(logprob=logprob) for logprob in logprobs]


def answered(candidates, *, prompts=1, n=1, prompt_entries=0, logprobs=False):
    """What comes of candidates, each a text and its log-probabilities."""
    log = Log()
    best_of = len(candidates) // prompts
    sink = BestOfSink(log, [prompt_entries] * prompts, best_of=best_of, n=n, logprobs=logprobs)
    sink.open(HEAD)
    # The last one first: they end in any order.
    for index, (text, numbers) in reversed(list(enumerate(candidates))):
        sink.pieces(index, [Content(text)], entries(*numbers))
        sink.finish(index, ChoiceFinish("stop", index))
    assert log.calls == [("open", HEAD)]
    sink.close()
    sink.flush()
    return log


@pytest.mark.parametrize(
    ("candidates", "n", "expected"),
    [
        ([("a", [-2.0]), ("b", [-1.0]), ("c", [-3.0])], 1, ["b"]),
        ([("a", [-2.0]), ("b", [-1.0]), ("c", [-3.0])], 2, ["b", "a"]),
        # By token: the longer one has the lower sum and the higher mean.
        ([("long", [-1.0, -1.0, -1.0]), ("short", [-2.0])], 1, ["long"]),
        ([("a", [-1.0]), ("b", [-1.0]), ("c", [-1.0])], 2, ["a", "b"]),  # equals keep their order
        ([("", []), ("b", [-9.0])], 1, ["b"]),  # one that generated nothing is the worst
    ],
    ids=["one", "two", "mean", "equal", "empty"],
)
def test_the_likeliest_per_token_are_returned_best_first(candidates, n, expected):
    log = answered(candidates, n=n)
    assert log.texts() == list(enumerate(expected))


def test_each_prompt_has_its_own_candidates():
    log = answered([("a", [-2.0]), ("b", [-1.0]), ("c", [-1.0]), ("d", [-2.0])], prompts=2)
    assert log.texts() == [(0, "b"), (1, "c")]
    assert [call[2].matched_stop for call in log.calls if call[0] == "finish"] == [1, 2]
    assert [call[0] for call in log.calls[-2:]] == ["close", "flush"]


def test_log_probabilities_of_the_prompt_do_not_count():
    # With the prompt's entry the second would be the better one.
    log = answered([("a", [-9.0, -1.0]), ("b", [-0.5, -2.0])], prompt_entries=1)
    assert log.texts() == [(0, "a")]


@pytest.mark.parametrize("logprobs", [False, True])
def test_log_probabilities_are_handed_on_only_if_asked_for(logprobs):
    log = answered([("a", [-2.0]), ("b", [-1.0])], logprobs=logprobs)
    [call] = [call for call in log.calls if call[0] == "pieces"]
    assert [entry.logprob for entry in call[3]] == ([-1.0] if logprobs else [])


def test_a_failure_is_handed_on_and_no_candidate_is():
    log = Log()
    sink = BestOfSink(log, [0], best_of=2, n=1, logprobs=False)
    sink.open(HEAD)
    sink.pieces(0, [Content("a")], entries(-1.0))
    error = EngineError("gone", engine_code=14)
    sink.fail(error)
    assert log.calls == [("open", HEAD), ("fail", error)]
