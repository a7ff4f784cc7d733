"""BestOfSink: the likeliest candidates of each prompt come out, in order, and nothing else."""

import pytest

from smg.errors import EngineError
from smg.parsers.events import Content
from smg.pipelines.best_of import BestOfSink
from smg.pipelines.sinks import AnswerHead, ChoiceFinish, UsageCounter
from smg.services.sinks import ProtoCompletionSink
from smg_proto.common.v1 import common_pb2
from tests.token_rows import token_rows

HEAD = AnswerHead("a", 1, "m", "grpc://w:1", UsageCounter())


def rows(*logprobs):
    return token_rows(*(common_pb2.TokenLogprob(token="x", logprob=logprob) for logprob in logprobs))


def answered(candidates, *, prompts=1, n=1, prompt_entries=0, logprobs=False):
    """The choices that come of candidates, each a text and its log-probabilities."""
    sink = ProtoCompletionSink(logprobs=logprobs)
    best_of = len(candidates) // prompts
    chooser = BestOfSink(sink, [prompt_entries] * prompts, best_of=best_of, n=n, logprobs=logprobs)
    chooser.open(HEAD)
    # The last one first: they end in any order.
    for index, (text, numbers) in reversed(list(enumerate(candidates))):
        for number in numbers:
            chooser.pieces(index, [], rows(number))
        chooser.pieces(index, [Content(text)], ())
        chooser.finish(index, ChoiceFinish("stop", index))
    chooser.close()
    chooser.flush()
    return sink.response().completion.choices


def texts(choices):
    return [(choice.index, choice.text) for choice in choices]


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
    assert texts(answered(candidates, n=n)) == list(enumerate(expected))


def test_each_prompt_has_its_own_candidates():
    choices = answered([("a", [-2.0]), ("b", [-1.0]), ("c", [-1.0]), ("d", [-2.0])], prompts=2)
    assert texts(choices) == [(0, "b"), (1, "c")]
    assert [choice.matched_stop.token_id for choice in choices] == [1, 2]


def test_log_probabilities_of_the_prompt_do_not_count():
    # With the prompt's entry the second would be the better one.
    choices = answered([("a", [-9.0, -1.0]), ("b", [-0.5, -2.0])], prompt_entries=1)
    assert texts(choices) == [(0, "a")]


def test_prompt_and_output_may_come_in_one():
    sink = ProtoCompletionSink(logprobs=True)
    chooser = BestOfSink(sink, [2], best_of=2, n=1, logprobs=True)
    chooser.open(HEAD)
    for index, numbers in enumerate([(-1.0, -1.0, -7.0), (-9.0, -9.0, -2.0)]):
        chooser.pieces(index, [Content(str(index))], rows(*numbers))
        chooser.finish(index, ChoiceFinish("stop"))
    chooser.close()
    assert texts(sink.response().completion.choices) == [(0, "1")]


@pytest.mark.parametrize("logprobs", [False, True])
def test_log_probabilities_are_handed_on_only_if_asked_for(logprobs):
    [choice] = answered([("a", [-2.0]), ("b", [-1.0])], logprobs=logprobs)
    assert choice.HasField("logprobs") == logprobs
    assert [entry.logprob for entry in choice.logprobs.content] == ([-1.0] if logprobs else [])


def test_a_failure_is_handed_on():
    sink = ProtoCompletionSink(logprobs=False)
    chooser = BestOfSink(sink, [0], best_of=2, n=1, logprobs=False)
    chooser.open(HEAD)
    chooser.pieces(0, [Content("a")], rows(-1.0))
    chooser.fail(EngineError("gone", engine_code=14))
    with pytest.raises(EngineError, match="gone"):
        sink.response()
