"""Stepper: what a sequence puts out does not depend on the others, and every piece of work ends exactly once."""

from concurrent.futures import Future

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servicers.local.compile_watch import MAX_COMPILE_S
from smg_proto.engine.v1 import work_pb2
from tests.examples import examples
from tests.unit.servicers.local.stepping import (
    EOS,
    MODEL,
    WEIGHTS,
    Driver,
    Session,
    from_bytes,
    generate,
    prompt_of,
    to_bytes,
    tokens_of,
)
from tests.unit.servicers.local.tensors import assert_close
from tests.unit.servicers.local.tiny_model import TINY, reference_hidden

LONG = prompt_of(9, 150)


def reference_tokens(prompt: list[int], count: int) -> list[int]:
    """Greedy decoding by the plain formula."""
    ids = list(prompt)
    for _ in range(count):
        hidden = reference_hidden(TINY, WEIGHTS, ids)[-1]
        ids.append(int((WEIGHTS["model.embed_tokens.weight"].double() @ hidden).argmax()))
    return ids[len(prompt) :]


def test_greedy_tokens_equal_the_plain_formula():
    prompt = prompt_of(1, 20)
    assert tokens_of(prompt, ignore_eos=True) == reference_tokens(prompt, 8)


@examples(6)
@given(
    lengths=st.lists(st.integers(1, 120), min_size=1, max_size=6),
    arrivals=st.lists(st.integers(0, 6), min_size=6, max_size=6),
    step_tokens=st.sampled_from([8, 64, 300]),
    slots=st.sampled_from([1, 3, 8]),
)
def test_a_sequence_is_the_same_alone_and_among_others(lengths, arrivals, step_tokens, slots):
    how = [
        {"temperature": 0.0 if i % 2 else 0.9, "seed": i, "max_new_tokens": 5 + i, "ignore_eos": True}
        for i in range(len(lengths))
    ]
    alone = [tokens_of(prompt_of(i, n), **how[i]) for i, n in enumerate(lengths)]
    driver, session = Driver(slots=slots, step_tokens=step_tokens), Session()
    for i, length in enumerate(lengths):
        driver.submit(session, generate(i, prompt_of(i, length), **how[i]))
        for _ in range(arrivals[i]):
            driver.step()
    driver.finish()
    assert [session.tokens[i] for i in range(len(lengths))] == alone
    assert not session.failed


def test_a_continued_sequence_goes_on_as_if_it_had_never_moved():
    prompt = prompt_of(2, 30)
    how = {
        "temperature": 0.8,
        "seed": 11,
        "max_new_tokens": 20,
        "presence_penalty": 0.7,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.2,
        "min_new_tokens": 15,
        "choice_index": 2,
    }
    whole = tokens_of(prompt, **how)
    for cut in (1, 7, 14):
        session = Driver().run(Session(), generate(1, prompt, output=whole[:cut], **how))
        assert whole[:cut] + session.tokens[1] == whole
        assert session.finished[1].completion_tokens == len(whole)
        assert session.started[1].prompt_tokens == 30


def test_seeds_repeat_and_choices_differ():
    how = {"temperature": 1.0, "max_new_tokens": 16, "ignore_eos": True}
    prompt = prompt_of(3, 10)
    first = tokens_of(prompt, seed=5, **how)
    assert tokens_of(prompt, seed=5, **how) == first
    assert tokens_of(prompt, seed=6, **how) != first
    assert tokens_of(prompt, seed=5, choice_index=1, **how) != first
    assert tokens_of(prompt, **how) != tokens_of(prompt, **how)


def test_end_and_stop_tokens_end_a_sequence_and_are_its_last_token():
    prompt = prompt_of(1, 20)
    tokens = tokens_of(prompt, ignore_eos=True)
    stop = tokens[3]
    session = Driver().run(Session(), generate(1, prompt, ignore_eos=True, stop_token_ids=[stop]))
    place = tokens.index(stop)
    assert session.tokens[1] == tokens[: place + 1]
    assert session.finished[1].matched_token_id == stop
    assert session.reason(1) == "STOP"
    # The model's own end token is made the likeliest by a bias.
    session = Driver().run(Session(), generate(1, prompt, logit_bias_token=[EOS], logit_bias_value=[100.0]))
    assert (session.tokens[1], session.finished[1].matched_token_id) == ([EOS], EOS)
    driver = Driver()
    how = {"logit_bias_token": [EOS], "logit_bias_value": [100.0], "max_new_tokens": 5}
    session = driver.run(
        Session(), generate(1, prompt, ignore_eos=True, **how), generate(2, prompt, min_new_tokens=4, **how)
    )
    assert session.tokens[1] == [EOS] * 5
    assert session.reason(1) == "LENGTH"
    assert not session.finished[1].HasField("matched_token_id")
    assert EOS not in session.tokens[2][:4]
    assert session.tokens[2][4] == EOS


def test_a_sequence_that_reaches_the_context_ends_with_length():
    session = Driver(slot_tokens=40).run(
        Session(),
        generate(1, prompt_of(1, 30), max_new_tokens=1000, ignore_eos=True),
        generate(2, prompt_of(2, 39)),
    )
    assert [session.finished[n].completion_tokens for n in (1, 2)] == [10, 1]
    assert {session.reason(1), session.reason(2)} == {"LENGTH"}


def test_zero_new_tokens_compute_the_prompt_only():
    options = work_pb2.LogprobsOptions(prompt_start=0, top_k=3)
    session = Driver(slot_tokens=40).run(
        Session(),
        generate(1, prompt_of(1, 40), max_new_tokens=0, logprobs=options),
        generate(2, [5], max_new_tokens=0),
    )
    assert len(session.started[1].prompt_logprobs) == 40
    assert [session.finished[n].completion_tokens for n in (1, 2)] == [0, 0]
    assert {session.reason(1), session.reason(2)} == {"LENGTH"}


def test_a_sequence_that_is_not_streamed_gets_everything_at_the_end():
    prompt, options = prompt_of(1, 20), work_pb2.LogprobsOptions(output=True, top_k=2)
    expected = Driver().run(Session(), generate(1, prompt, logprobs=options))
    session = Driver().run(Session(), generate(1, prompt, stream=False, logprobs=options))
    assert session.tokens[1] == []
    assert from_bytes(session.finished[1].token_ids) == expected.tokens[1]
    assert list(session.finished[1].logprobs) == expected.logprobs[1]
    earlier = expected.tokens[1][:3]
    session = Driver().run(Session(), generate(1, prompt, output=earlier, stream=False))
    assert from_bytes(session.finished[1].token_ids) == expected.tokens[1][3:]


def test_a_second_question_takes_its_prefix_from_the_cache():
    driver, session = Driver(), Session()
    driver.run(session, generate(1, LONG))
    driver.run(session, generate(2, [*LONG, *session.tokens[1][:-1], 7, 8]))
    driver.run(session, generate(3, LONG))
    assert [session.started[n].cached_tokens for n in (1, 2, 3)] == [0, 150 + 7, 149]
    assert session.tokens[3] == session.tokens[1]
    assert driver.stepper.cache.flush() > 0
    driver.run(session, generate(4, LONG))
    assert session.finished[4].cached_tokens == 0


def test_choices_of_one_prompt_compute_it_once():
    driver, session = Driver(step_tokens=32), Session()
    driver.run(session, *(generate(n, LONG, temperature=1.0, seed=1, choice_index=n) for n in range(4)))
    assert sorted(session.started[n].cached_tokens for n in range(4)) == [0, 149, 149, 149]


def test_a_prompt_logprob_request_computes_what_it_needs_again():
    driver, session = Driver(), Session()
    driver.run(session, generate(1, LONG))
    options = work_pb2.LogprobsOptions(prompt_start=100)
    driver.run(session, generate(2, LONG, logprobs=options))
    assert session.started[2].cached_tokens == 99
    assert len(session.started[2].prompt_logprobs) == 50


def test_running_sequences_get_a_token_in_every_step_of_a_long_prompt():
    driver, session = Driver(step_tokens=16), Session()
    driver.submit(session, generate(1, prompt_of(1, 5), max_new_tokens=30, ignore_eos=True))
    driver.step()
    driver.submit(session, generate(2, LONG))
    for before in range(1, 5):
        assert len(session.tokens[1]) == before
        driver.step()
    assert 2 not in session.started
    driver.finish()


def test_a_short_prompt_does_not_wait_behind_a_long_one():
    driver, session = Driver(step_tokens=32), Session()
    driver.submit(session, generate(1, LONG), generate(2, prompt_of(2, 10)))
    driver.step()
    assert 2 in session.started
    assert 1 not in session.started
    driver.finish()
    assert session.ended == {1, 2}


def test_an_abort_acts_within_one_step_wherever_the_sequence_is():
    driver, session = Driver(slots=2, step_tokens=16), Session()
    driver.submit(session, generate(1, prompt_of(1, 5), max_new_tokens=99, ignore_eos=True))
    driver.step()
    driver.submit(session, generate(2, LONG), generate(3, prompt_of(3, 5)))
    driver.step()
    assert (driver.load.running, driver.load.waiting) == (2, 1)
    driver.submit(session, abort=[1, 2, 3, 77])
    driver.step()
    assert [session.reason(n) for n in (1, 2, 3)] == ["ABORT"] * 3
    assert session.finished[1].completion_tokens == len(session.tokens[1]) == 2
    assert (driver.load.running, driver.load.waiting) == (0, 0)
    assert not driver.stepper.has_work
    # Slots are whole again, and what they hold is right.
    driver.run(session, generate(4, LONG))
    assert session.tokens[4] == tokens_of(LONG)


def test_work_and_its_abort_in_one_message_end_it():
    driver, session = Driver(), Session()
    driver.run(session, generate(1, [5, 6]), abort=[1])
    assert session.reason(1) == "ABORT"
    assert len(session.events) == 1


def test_a_closed_session_hears_nothing_and_leaves_nothing_behind():
    driver, gone, other = Driver(slots=2), Session(), Session()
    driver.submit(gone, generate(1, LONG), generate(2, [5], max_new_tokens=99), generate(3, [6]))
    driver.submit(other, generate(1, [7, 8]))
    driver.step()
    heard = len(gone.events)
    driver.stepper.close(gone)
    driver.finish()
    assert len(gone.events) == heard
    assert other.tokens[1] == tokens_of([7, 8])
    assert driver.load.running == 0


def test_more_waiting_work_than_allowed_is_refused_for_later():
    driver, session = Driver(slots=1, max_waiting=2), Session()
    driver.run(session, *(generate(n, prompt_of(n, 5)) for n in range(4)))
    assert session.failed.keys() == {2, 3}
    assert (session.failed[3].code, session.failed[3].is_retryable) == (8, True)
    assert "at most 2 wait" in session.failed[3].message
    assert session.finished.keys() == {0, 1}


class _BreaksOnce:
    """A model whose next forward raises, or gives NaN."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __getattr__(self, name):
        return getattr(MODEL, name)

    def forward(self, *arguments):
        fault, self.fault = self.fault, ""
        if fault == "raise":
            raise RuntimeError("out of memory")
        hidden = MODEL.forward(*arguments)
        return hidden * torch.nan if fault == "nan" else hidden


@pytest.mark.parametrize("fault", ["raise", "nan"])
def test_a_fault_in_a_step_fails_its_sequences_and_the_engine_lives_on(fault, caplog):
    model = _BreaksOnce("")
    driver, session = Driver(model=model, slots=2), Session()
    driver.submit(session, *(generate(n, prompt_of(n, 9), ignore_eos=True) for n in (1, 2, 3)))
    driver.step()
    model.fault = fault
    driver.finish()
    assert session.failed.keys() == {1, 2}
    assert (session.failed[1].code, session.failed[1].is_retryable) == (13, True)
    assert session.tokens[3] == tokens_of(prompt_of(3, 9), ignore_eos=True)
    assert "2 sequences are lost" in caplog.text
    # What the fault may have spoilt is not reused.
    driver.run(session, generate(4, prompt_of(1, 9)))
    assert session.started[4].cached_tokens == 0
    assert session.tokens[4] == tokens_of(prompt_of(1, 9))


def test_embeddings_are_the_mean_state_whatever_the_chunks():
    ids = prompt_of(4, 100)
    (expected,) = MODEL.embed([ids])
    session = Session()
    Driver(step_tokens=16).run(session, embed=[work_pb2.Embed(sequence=1, input_ids=to_bytes(ids))])
    assert_close(torch.tensor(session.embedded[1].values), expected, rtol=1e-4, atol=1e-5)
    assert session.embedded[1].prompt_tokens == 100
    Driver().run(session, embed=[work_pb2.Embed(sequence=2, input_ids=to_bytes(ids), dimensions=8)])
    shorter = torch.nn.functional.normalize(expected[:8], dim=0)
    assert_close(torch.tensor(session.embedded[2].values), shorter, rtol=1e-4, atol=1e-5)


def test_classification_is_refused_as_not_served():
    session = Driver().run(Session(), classify=[work_pb2.Classify(sequence=1, input_ids=to_bytes([5]))])
    assert session.failed[1].code == 12


def test_a_number_in_use_is_refused():
    driver, session = Driver(), Session()
    driver.submit(session, generate(1, [5, 6]))
    driver.submit(session, generate(1, [7]))
    event = driver.stepper.step(1.0)[0][1]
    assert "running already" in event.failed[0].message


def test_sessions_share_steps_and_get_one_event_each():
    driver, one, two = Driver(), Session(), Session()
    driver.submit(one, generate(1, [5, 6]), generate(2, [7, 8]))
    driver.submit(two, generate(1, [9, 10]))
    driver.step()
    assert (len(one.events), len(two.events)) == (1, 1)
    assert list(one.events[0].sequence) == [1, 2]
    driver.finish()
    assert two.tokens[1] == tokens_of([9, 10])


def test_the_load_is_told_when_sequences_come_and_go():
    driver, session = Driver(slots=2), Session()
    driver.run(session, *(generate(n, prompt_of(n, 9), ignore_eos=True) for n in (1, 2, 3)))
    told = [(load.running, load.waiting) for load in session.loads]
    assert told == [(2, 1), (0, 1), (1, 0), (0, 0)]
    assert session.loads[0].waiting_uncached_tokens == 9
    assert session.loads[0].kv_capacity_tokens == 2 * 256
    assert driver.load.tokens_per_second == 0
    assert driver.load.steps > 0


class Compilers:
    """Compiles nothing, until it is told to."""

    def __init__(self):
        self.futures = []

    def start(self, constraint, output, done):
        self.futures.append(Future())
        return self.futures[-1]


CONSTRAINT = work_pb2.Constraint(regex="a")


def test_a_sequence_that_waits_for_its_constraint_is_no_standstill_and_is_refused_in_the_end():
    compilers, session = Compilers(), Session()
    driver = Driver(grammars=compilers)
    driver.submit(session, *(generate(n, [5, 6], constraint=CONSTRAINT) for n in (1, 2)))
    compilers.futures[0].set_running_or_notify_cancel()
    driver.step()
    steps = driver.load.steps
    driver.step()
    assert driver.load.steps == steps + 1
    driver.now_s += MAX_COMPILE_S
    driver.step()
    assert not driver.stepper.has_work
    assert (session.failed[1].code, session.failed[1].is_retryable) == (3, False)
    assert (session.failed[2].code, session.failed[2].is_retryable) == (8, True)


@pytest.mark.parametrize("how", ["abort", "close"])
def test_a_constraint_that_nobody_waits_for_is_not_compiled(how):
    compilers, session = Compilers(), Session()
    driver = Driver(grammars=compilers)
    driver.submit(session, generate(1, [5, 6], constraint=CONSTRAINT))
    if how == "abort":
        driver.submit(session, abort=[1])
    else:
        driver.stepper.close(session)
    assert compilers.futures[0].cancelled()
