"""logprobs: the numbers of a float64 log-softmax over the whole vocabulary, before masks and temperature."""

import pytest
import torch

from servicers.local import logprobs
from smg_proto.engine.v1.work_pb2 import LogprobsOptions
from tests.unit.servicers.local.stepping import WEIGHTS, Driver, Session, generate, prompt_of
from tests.unit.servicers.local.tiny_model import TINY, reference_hidden


def reference_logprobs(ids: list[int]) -> torch.Tensor:
    """[positions, vocabulary] by the plain formula."""
    hidden = reference_hidden(TINY, WEIGHTS, ids)
    return (hidden @ WEIGHTS["model.embed_tokens.weight"].double().T).log_softmax(-1)


def check(entry, expected: torch.Tensor, token: int, top_k: int) -> None:
    assert entry.logprob == pytest.approx(expected[token].item(), abs=2e-4)
    values, ids = expected.topk(top_k)
    assert list(entry.top_token) == ids.tolist()
    assert list(entry.top_logprob) == pytest.approx(values.tolist(), abs=2e-4)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "seed": 4, "top_p": 0.9}])
def test_output_logprobs_are_those_of_the_model(sampling):
    prompt = prompt_of(5, 30)
    options = LogprobsOptions(output=True, top_k=5, token_ids=[7, 90])
    session = Driver().run(Session(), generate(1, prompt, logprobs=options, ignore_eos=True, **sampling))
    tokens, entries = session.tokens[1], session.logprobs[1]
    expected = reference_logprobs([*prompt, *tokens])[29:]
    assert len(entries) == len(tokens) == 8
    for entry, row, token in zip(entries, expected, tokens, strict=False):
        check(entry, row, token, 5)
        assert list(entry.asked_logprob) == pytest.approx(row[[7, 90]].tolist(), abs=2e-4)


def test_penalties_and_bias_show_in_logprobs_and_masks_do_not():
    prompt = prompt_of(5, 30)
    options = LogprobsOptions(output=True, token_ids=[7, 1])
    how = {"logit_bias_token": [7], "logit_bias_value": [3.0], "min_new_tokens": 8}
    session = Driver().run(Session(), generate(1, prompt, logprobs=options, **how))
    row = reference_logprobs(prompt)[-1]
    row[7] += 3.0
    expected = row.log_softmax(-1)[[7, 1]]
    assert list(session.logprobs[1][0].asked_logprob) == pytest.approx(expected.tolist(), abs=2e-4)


@pytest.mark.parametrize("start", [0, 1, 17, 39, 40])
@pytest.mark.parametrize("step_tokens", [16, 300])
def test_prompt_logprobs_begin_where_asked_whatever_the_chunks(start, step_tokens, monkeypatch):
    monkeypatch.setattr(logprobs, "PROMPT_ROWS", 7)
    prompt = prompt_of(6, 40)
    session = Driver(step_tokens=step_tokens).run(
        Session(), generate(1, prompt, logprobs=LogprobsOptions(prompt_start=start, top_k=3))
    )
    entries = list(session.started[1].prompt_logprobs)
    assert len(entries) == 40 - start
    expected = reference_logprobs(prompt)
    for position, entry in enumerate(entries, start):
        if position == 0:
            assert not entry.HasField("logprob")
        else:
            check(entry, expected[position - 1], prompt[position], 3)
    assert 1 not in session.logprobs


def test_prompt_logprobs_leave_earlier_output_out():
    prompt = prompt_of(6, 20)
    session = Driver().run(
        Session(), generate(1, prompt, output=[4, 5, 6], logprobs=LogprobsOptions(prompt_start=0))
    )
    assert len(session.started[1].prompt_logprobs) == 20


def test_only_sequences_that_ask_get_logprobs():
    options = LogprobsOptions(output=True)
    session = Driver().run(Session(), generate(1, [5, 6]), generate(2, [5, 6], logprobs=options))
    assert 1 not in session.logprobs
    assert len(session.logprobs[2]) == 8
    assert not session.logprobs[2][0].top_token
