"""Requests to SGLang say what the contract says, or are refused."""

from __future__ import annotations

import pytest

from servicers.base import CannotStart, EngineOptions
from servicers.sglang.answers import EngineAborted, by_label, refusal_of
from servicers.sglang.requests import Refused, generate_call
from servicers.sglang.settings import settings_from_options
from servicers.token_bytes import ids_to_bytes
from smg_proto.engine.v1 import work_pb2
from tests.unit.servicers.sglang.serving import generate, served

UNIMPLEMENTED = 12


def params_of(request, **model):
    return generate_call(request, "r", served(**model))["sampling_params"]


def continued(*ids, **fields):
    request = generate(1, 5, **fields)
    request.output_ids = ids_to_bytes(ids)
    return request


def test_what_is_unset_is_the_models_default_and_else_left_to_sglang():
    request = work_pb2.Generate(prompt_ids=ids_to_bytes([1]), stream=True)
    params = params_of(request, temperature=0.3)
    assert params["temperature"] == 0.3
    assert "top_p" not in params


@pytest.mark.parametrize(("asked", "given"), [(None, 97), (5, 5), (500, 97), (0, 0)])
def test_the_context_bounds_the_output(asked, given):
    request = generate(1, 1, 2, 3)
    request.sampling.ClearField("max_new_tokens")
    if asked is not None:
        request.sampling.max_new_tokens = asked
    assert params_of(request)["max_new_tokens"] == given


def test_what_was_delivered_before_becomes_prompt_and_counts_as_output():
    call = generate_call(continued(7, 8, 8, max_new_tokens=5, min_new_tokens=4), "r", served())
    assert call["input_ids"] == [5, 7, 8, 8]
    assert call["sampling_params"]["max_new_tokens"] == 2
    assert call["sampling_params"]["min_new_tokens"] == 1


def test_a_frequency_penalty_on_earlier_output_is_subtracted_beforehand():
    request = continued(7, 8, 8, frequency_penalty=0.5, logit_bias_token=[8], logit_bias_value=[2])
    assert params_of(request)["logit_bias"] == {"7": -0.5, "8": 1.0}


@pytest.mark.parametrize("name", ["presence_penalty", "repetition_penalty"])
def test_other_penalties_on_earlier_output_are_refused_for_another_engine_to_take(name):
    with pytest.raises(Refused) as caught:
        params_of(continued(7, **{name: 1.5}))
    assert caught.value.refusal.code == UNIMPLEMENTED
    assert caught.value.refusal.is_retryable
    assert params_of(generate(1, 5, **{name: 1.5}))[name] == 1.5


def test_seeds_differ_by_choice_stay_in_range_and_are_drawn_where_none_is_given():
    seeds = [params_of(generate(1, 5, seed=7, choice_index=n))["sampling_seed"] for n in range(3)]
    assert seeds == [7, 8, 9]
    largest = params_of(generate(1, 5, seed=2**63 - 1, choice_index=1))["sampling_seed"]
    assert largest == -(2**63)
    assert len({params_of(generate(1, 5))["sampling_seed"] for _ in range(4)}) == 4


def test_a_form_that_begins_late_needs_a_reasoning_parser():
    request = generate(1, 5)
    request.constraint.regex = "[0-9]"
    assert params_of(request)["regex"] == "[0-9]"
    request.constraint.begins_after = "</think>"
    with pytest.raises(Refused, match="reasoning_parser"):
        generate_call(request, "r", served())
    assert generate_call(request, "r", served(reasons=True))["require_reasoning"]


def test_a_form_cannot_be_continued():
    request = continued(7)
    request.constraint.regex = "[0-9]"
    with pytest.raises(Refused) as caught:
        params_of(request)
    assert caught.value.refusal.is_retryable


@pytest.mark.parametrize(("start", "sent"), [(0, 0), (1, 0), (2, 1), (3, -1)])
def test_prompt_logprobs_start_one_early(start, sent):
    request = generate(1, 1, 2, 3)
    request.logprobs.prompt_start = start
    call = generate_call(request, "r", served())
    assert call["return_logprob"]
    assert call["logprob_start_len"] == sent


@pytest.mark.parametrize(
    ("error", "code", "is_retryable"),
    [
        (ValueError("too long"), 3, False),
        (RuntimeError("a scheduler died"), 13, True),
        (LookupError("no log-probability"), 13, True),
        (EngineAborted(refusal_of(ValueError("x"))), 3, False),
    ],
)
def test_errors_of_the_engine_become_codes(error, code, is_retryable):
    refusal = refusal_of(error)
    assert (refusal.code, refusal.is_retryable) == (code, is_retryable)


@pytest.mark.parametrize(
    ("status", "code", "is_retryable"), [(400, 3, False), (429, 8, True), (503, 14, True), (500, 13, True)]
)
def test_statuses_become_codes(status, code, is_retryable):
    class HTTPException(Exception):
        status_code = status
        detail = "why"

    refusal = refusal_of(HTTPException())
    assert (refusal.code, refusal.message, refusal.is_retryable) == (code, "why", is_retryable)


def test_a_label_without_a_number_is_missed():
    assert by_label([(-1.0, 5, None), (-2.0, 6, None)], [6, 5]) == [-2.0, -1.0]
    with pytest.raises(LookupError, match="token id 7"):
        by_label([(-1.0, 5, None)], [7])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (EngineOptions(), "0 --model-path given"),
        (EngineOptions(("/a", "/b")), "2 --model-path given"),
        (EngineOptions(("/a",), engine_args=(("skip_tokenizer_init", True),)), "the servicer needs False"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(CannotStart, match=words):
        settings_from_options(options)


def test_engine_arguments_go_to_sglang_by_their_names():
    options = EngineOptions(("/models/a",), max_running=9, engine_args=(("tp_size", 2),))
    settings = settings_from_options(options)
    assert settings.model_id == "a"
    assert settings.arguments["tp_size"] == 2
    assert settings.arguments["max_running_requests"] == 9
