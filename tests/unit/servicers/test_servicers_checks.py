"""The checks of incoming work: edges of the ranges. Whole tables run in tests/contract/servicers."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicers.checks import check_classify, check_embed, check_generate, check_score
from servicers.models import models_by_name
from servicers.sampling_checks import check_sampling
from smg_proto.engine.v1 import card_pb2, work_pb2
from tests.unit.servicers.fakes import generate, model_card

MODEL = models_by_name(card_pb2.DescribeResponse(models=[model_card()]))[""]
# name, lowest, highest, whether the lowest is allowed
RANGES = [
    ("temperature", 0, 2, True),
    ("top_p", 0, 1, False),
    ("min_p", 0, 1, True),
    ("presence_penalty", -2, 2, True),
    ("frequency_penalty", -2, 2, True),
    ("repetition_penalty", 0, 2, False),
]


def ids(*tokens: int) -> bytes:
    return array("I", tokens).tobytes()


@pytest.mark.parametrize(("name", "low", "high", "has_low"), RANGES)
@given(value=st.floats())
def test_exactly_the_numbers_of_the_range_pass(name, low, high, has_low, value):
    fault = check_sampling(card_pb2.Sampling(**{name: value}), 100)
    is_inside = low <= value <= high and (has_low or value != low)
    assert bool(fault) == (not is_inside)
    assert not fault or fault.startswith(f"sampling.{name} is ")


@pytest.mark.parametrize(
    ("fields", "is_good"),
    [
        ({}, True),
        ({"top_k": -1}, True),
        ({"top_k": 1}, True),
        ({"top_k": 0}, False),
        ({"min_new_tokens": 5}, True),
        ({"min_new_tokens": 5, "max_new_tokens": 5}, True),
        ({"min_new_tokens": 6, "max_new_tokens": 5}, False),
        ({"stop_token_ids": [99]}, True),
        ({"stop_token_ids": [100]}, False),
        ({"stop_token_ids": [1] * 5000}, False),
        ({"logit_bias_token": [99], "logit_bias_value": [-100.0]}, True),
        ({"seed": -(2**63)}, True),
    ],
)
def test_whole_numbers_and_lists(fields, is_good):
    assert (check_sampling(card_pb2.Sampling(**fields), 100) == "") == is_good


@pytest.mark.parametrize(
    ("prompt", "output", "max_new_tokens", "is_good"),
    [
        (31, 0, None, True),
        (32, 0, None, False),
        (32, 0, 0, True),
        (33, 0, 0, False),
        (20, 11, 5, True),
        (20, 12, 5, False),
        (1, 0, 10**6, True),  # the context ends it with LENGTH
    ],
)
def test_prompt_and_output_must_leave_room_in_the_context(prompt, output, max_new_tokens, is_good):
    request = generate(1, prompt_ids=ids(*[1] * prompt), output_ids=ids(*[1] * output))
    if max_new_tokens is not None:
        request.sampling.max_new_tokens = max_new_tokens
    refusal = check_generate(request, MODEL)
    assert (refusal is None) == is_good
    assert refusal is None or f"prompt_ids has {prompt} tokens and output_ids {output}" in refusal.message


def test_a_model_without_context_length_takes_any_length():
    endless = models_by_name(card_pb2.DescribeResponse(models=[model_card(context_length=0)]))[""]
    assert check_generate(generate(1, prompt_ids=ids(*[1] * 5000)), endless) is None


@pytest.mark.parametrize(
    ("check", "request_", "what"),
    [
        (check_generate, generate(1), "generate"),
        (check_score, work_pb2.Score(), "score"),
        (check_embed, work_pb2.Embed(), "embed"),
        (check_classify, work_pb2.Classify(), "classify"),
    ],
)
def test_what_a_model_does_not_serve_is_unimplemented(check, request_, what):
    card = model_card(capabilities=card_pb2.Capabilities())
    refusal = check(request_, models_by_name(card_pb2.DescribeResponse(models=[card]))[""])
    assert (refusal.code, refusal.message) == (12, f"model 'm' does not serve {what}")


def test_prompt_logprobs_need_the_capability():
    card = model_card(capabilities=card_pb2.Capabilities(generate=True))
    model = models_by_name(card_pb2.DescribeResponse(models=[card]))[""]
    refusal = check_generate(generate(1, logprobs=work_pb2.LogprobsOptions(prompt_start=0)), model)
    assert refusal.code == 12


def test_adapters_and_constraints_must_be_known():
    card = model_card(loras=["x"])
    card.capabilities.constraints.append("regex")
    model = models_by_name(card_pb2.DescribeResponse(models=[card]))[""]
    assert check_generate(generate(1, lora="x", constraint=work_pb2.Constraint(regex="a")), model) is None
    assert "allowed: x" in check_generate(generate(1, lora="y"), model).message
    refusal = check_generate(generate(1, constraint=work_pb2.Constraint(lark="start: /a/")), model)
    assert refusal.message == "constraint is lark; allowed: regex"
    late = work_pb2.Constraint(regex="a", begins_after="x" * 256)
    assert check_generate(generate(1, constraint=late), model) is None
    late.begins_after += "x"
    refusal = check_generate(generate(1, constraint=late), model)
    assert refusal.message == "constraint.begins_after has 257 characters; allowed: at most 256"


@pytest.mark.parametrize(
    ("prefix", "suffix", "label", "is_good"),
    [(20, 12, 1, True), (20, 13, 1, False), (20, 10, 3, True), (20, 10, 4, False), (0, 1, 1, True)],
)
def test_scored_labels_must_fit_into_the_context(prefix, suffix, label, is_good):
    part = work_pb2.ScoreSuffix(ids=ids(*[1] * suffix), label_sequences=[ids(*[1] * label)])
    refusal = check_score(work_pb2.Score(prefix_ids=ids(*[1] * prefix), suffixes=[part]), MODEL)
    assert (refusal is None) == is_good


def test_models_are_found_by_name_and_the_first_by_no_name():
    models = models_by_name(card_pb2.DescribeResponse(models=[model_card("a"), model_card("b")]))
    assert (models[""].id, models["a"].id, models["b"].id) == ("a", "a", "b")
    with pytest.raises(ValueError, match="no model"):
        models_by_name(card_pb2.DescribeResponse())
