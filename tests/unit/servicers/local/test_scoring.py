"""scoring: the same numbers as computing every prompt whole, however suffixes are packed and cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicers.local import scoring
from smg_proto.engine.v1.work_pb2 import Score, ScoreSuffix
from tests.examples import examples
from tests.unit.servicers.local.stepping import (
    MODEL,
    WEIGHTS,
    Driver,
    Session,
    generate,
    prompt_of,
    to_bytes,
    tokens_of,
)
from tests.unit.servicers.local.tiny_model import TINY, reference_hidden


def reference_logprob(ids: list[int], label: list[int]) -> float:
    """Mean log-probability of the label's tokens after the ids, by the plain formula."""
    hidden = reference_hidden(TINY, WEIGHTS, [*ids, *label])
    logp = (hidden @ WEIGHTS["model.embed_tokens.weight"].double().T).log_softmax(-1)
    return sum(logp[len(ids) - 1 + i, token].item() for i, token in enumerate(label)) / len(label)


def request(number: int, prefix: list[int], suffixes) -> Score:
    return Score(
        sequence=number,
        prefix_ids=to_bytes(prefix),
        suffixes=[
            ScoreSuffix(
                ids=to_bytes(ids), label_ids=label_ids, label_sequences=[to_bytes(s) for s in sequences]
            )
            for ids, label_ids, sequences in suffixes
        ],
    )


def check(scored, prefix: list[int], suffixes) -> None:
    assert len(scored.suffixes) == len(suffixes)
    for scores, (ids, label_ids, sequences) in zip(scored.suffixes, suffixes, strict=True):
        expected = [reference_logprob([*prefix, *ids], [label]) for label in label_ids]
        assert list(scores.logprobs) == pytest.approx(expected, abs=5e-4)
        expected = [reference_logprob([*prefix, *ids], sequence) for sequence in sequences]
        assert list(scores.sequence_logprobs) == pytest.approx(expected, abs=5e-4)


SUFFIXES = [
    (prompt_of(1, 5), [3, 9], []),
    (prompt_of(2, 12), [4], [[7], [8]]),
    (prompt_of(3, 3), [5], [[7, 8, 9], [7, 8], [7]]),
    (prompt_of(4, 60), [6], []),  # too long to pack
    (prompt_of(5, 1), [], [prompt_of(8, 20)]),  # a label too long to pack
]


@pytest.mark.parametrize("prefix_tokens", [0, 1, 70])
@pytest.mark.parametrize("step_tokens", [8, 500])
def test_scores_equal_whole_prompts(prefix_tokens, step_tokens, monkeypatch):
    monkeypatch.setattr(scoring, "PACKED_SUFFIX_TOKENS", 40)
    monkeypatch.setattr(scoring, "HEAD_ROWS", 2)
    prefix = prompt_of(7, prefix_tokens)
    session = Session()
    Driver(step_tokens=step_tokens).run(session, score=[request(1, prefix, SUFFIXES)])
    check(session.scored[1], prefix, SUFFIXES)
    assert session.scored[1].prompt_tokens == prefix_tokens + 81


@examples(6)
@given(
    suffixes=st.lists(
        st.tuples(
            st.integers(1, 30), st.lists(st.lists(st.integers(0, 95), min_size=1, max_size=4), max_size=3)
        ),
        min_size=1,
        max_size=4,
    ),
    step_tokens=st.integers(4, 80),
)
def test_any_mix_of_suffixes_and_labels_gives_the_same_numbers(suffixes, step_tokens):
    prefix = prompt_of(11, 25)
    parts = [(prompt_of(i, length), [2, 3], labels) for i, (length, labels) in enumerate(suffixes)]
    session = Session()
    Driver(step_tokens=step_tokens).run(session, score=[request(1, prefix, parts)])
    check(session.scored[1], prefix, parts)


def test_the_prefix_is_computed_once_and_stays_whole():
    prefix = prompt_of(7, 70)
    driver, session = Driver(), Session()
    driver.run(session, score=[request(1, prefix, SUFFIXES)])
    driver.run(session, score=[request(2, prefix, SUFFIXES)])
    assert [session.scored[n].cached_tokens for n in (1, 2)] == [0, 70]
    assert [each.logprobs for each in session.scored[1].suffixes] == [
        each.logprobs for each in session.scored[2].suffixes
    ]
    assert [each.cached_tokens for each in session.scored[1].suffixes] == [0, *[70] * (len(SUFFIXES) - 1)]
    assert session.scored[1].compute_seconds > 0
    driver.run(session, generate(3, [*prefix, 5]))
    assert session.started[3].cached_tokens == 70
    assert session.tokens[3] == tokens_of([*prefix, 5])


def test_sequences_go_on_while_a_big_score_runs():
    driver, session = Driver(step_tokens=40), Session()
    driver.submit(session, generate(1, [5, 6], max_new_tokens=40, ignore_eos=True))
    driver.step()
    many = [(prompt_of(i, 10), [3], []) for i in range(60)]
    driver.submit(session, score=[request(2, prompt_of(7, 30), many)])
    steps = 0
    while 2 not in session.scored:
        driver.step()
        steps += 1
        assert len(session.tokens[1]) == min(steps + 1, 40)
    assert steps > 10
    driver.finish()
    check(session.scored[2], prompt_of(7, 30), many)


def test_an_abort_ends_a_score_half_way():
    driver, session = Driver(step_tokens=8), Session()
    driver.submit(session, score=[request(1, [5], SUFFIXES)])
    driver.step()
    driver.step()
    driver.submit(session, abort=[1])
    driver.step()
    assert session.reason(1) == "ABORT"
    assert not session.scored
    assert not driver.stepper.has_work


class _BreaksPacking:
    def __getattr__(self, name):
        return getattr(MODEL, name)

    def forward_packed(self, *_):
        raise RuntimeError("out of memory")


def test_a_fault_in_scoring_fails_that_score_only(caplog):
    driver, session = Driver(model=_BreaksPacking()), Session()
    driver.run(session, generate(2, [5, 6]), score=[request(1, [5], SUFFIXES[:1])])
    assert session.failed[1].code == 13
    assert session.tokens[2] == tokens_of([5, 6])
    assert "scoring failed" in caplog.text
