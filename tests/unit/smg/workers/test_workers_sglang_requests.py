"""Our requests to SGLang's: every field arrives, and what cannot is refused."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import EngineError, InvalidRequest
from smg.workers.sglang.names import RequestNames
from smg.workers.sglang.requests import (
    embed_to_sglang,
    generate_to_sglang,
    score_label_to_sglang,
    score_to_sglang,
)
from smg_proto.engine.v1 import card_pb2, work_pb2

NO_DEFAULTS = card_pb2.Sampling()


def ids(*numbers: int) -> bytes:
    return array("I", numbers).tobytes()


def converted(defaults=NO_DEFAULTS, **fields):
    fields.setdefault("prompt_ids", ids(1, 2, 3))
    return generate_to_sglang(work_pb2.Generate(**fields), "rid", defaults)


def test_every_sampling_number_arrives():
    sampling = card_pb2.Sampling(
        temperature=0.5,
        top_p=0.25,
        top_k=40,
        min_p=0.125,
        presence_penalty=-1.5,
        frequency_penalty=1.25,
        repetition_penalty=1.5,
        max_new_tokens=100,
        min_new_tokens=7,
        seed=12345,
        choice_index=2,
        stop_token_ids=[8, 9],
        stop=["a", "b"],
        ignore_eos=True,
        logit_bias_token=[5, 6],
        logit_bias_value=[-100, 2.5],
    )
    params = converted(sampling=sampling).sampling_params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.25, 40, 0.125)
    assert (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (-1.5, 1.25, 1.5)
    assert (params.max_new_tokens, params.min_new_tokens) == (100, 7)
    assert (list(params.stop), list(params.stop_token_ids)) == (["a", "b"], [8, 9])
    assert params.ignore_eos
    assert dict(params.logit_bias) == {"5": -100, "6": 2.5}
    assert params.n == 1
    assert params.custom_params["sampling_seed"] == 12347


def test_this_test_covers_all_sampling_fields():
    names = {field.name for field in card_pb2.Sampling.DESCRIPTOR.fields}
    assert names == {
        *(
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
        ),
        *("max_new_tokens", "min_new_tokens", "seed", "choice_index", "stop_token_ids", "stop", "ignore_eos"),
        *("logit_bias_token", "logit_bias_value"),
    }


def test_unset_numbers_become_the_models_defaults_then_the_neutral_ones():
    defaults = card_pb2.Sampling(temperature=0.75, top_k=20)
    params = converted(defaults, sampling=card_pb2.Sampling(top_k=5)).sampling_params
    assert (params.temperature, params.top_k) == (0.75, 5)
    assert (params.top_p, params.min_p, params.repetition_penalty) == (1.0, 0.0, 1.0)
    assert not params.HasField("max_new_tokens")
    assert not params.HasField("custom_params")


def test_zeros_that_the_client_chose_stay_zeros():
    sampling = card_pb2.Sampling(temperature=0, max_new_tokens=0, seed=0)
    defaults = card_pb2.Sampling(temperature=0.75, max_new_tokens=50)
    params = converted(defaults, sampling=sampling).sampling_params
    assert params.temperature == 0
    assert params.HasField("max_new_tokens")
    assert params.max_new_tokens == 0
    assert params.custom_params["sampling_seed"] == 0


def test_ids_name_stream_and_adapter_arrive():
    result = converted(stream=True, lora="adapter")
    assert list(result.tokenized.input_ids) == [1, 2, 3]
    assert (result.request_id, result.stream, result.lora_id) == ("rid", True, "adapter")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("json_schema", "json_schema"),
        ("regex", "regex"),
        ("ebnf", "ebnf_grammar"),
        ("structural_tag", "structural_tag"),
    ],
)
def test_constraints_arrive(kind, name):
    result = converted(constraint=work_pb2.Constraint(**{kind: "text"}))
    assert result.sampling_params.WhichOneof("constraint") == name
    assert getattr(result.sampling_params, name) == "text"


def test_a_constraint_that_sglang_lacks_is_refused_with_what_it_knows():
    with pytest.raises(InvalidRequest, match="'lark': SGLang knows json_schema, regex, ebnf, structural_tag"):
        converted(constraint=work_pb2.Constraint(lark="start: x"))


def test_delivered_tokens_continue_the_prompt_and_count_against_the_limits():
    sampling = card_pb2.Sampling(max_new_tokens=10, min_new_tokens=1)
    result = converted(output_ids=ids(7, 8), sampling=sampling)
    assert list(result.tokenized.input_ids) == [1, 2, 3, 7, 8]
    assert (result.sampling_params.max_new_tokens, result.sampling_params.min_new_tokens) == (8, 0)


def test_a_constrained_output_is_not_continued_without_its_state():
    with pytest.raises(EngineError, match="continue") as caught:
        converted(output_ids=ids(7), constraint=work_pb2.Constraint(regex="a*"))
    assert caught.value.can_retry


@pytest.mark.parametrize(
    ("options", "returned", "start"),
    [
        (work_pb2.LogprobsOptions(), False, -1),
        (work_pb2.LogprobsOptions(output=True), True, -1),
        (work_pb2.LogprobsOptions(token_ids=[1]), True, -1),
        (work_pb2.LogprobsOptions(prompt_start=0), True, 0),
        # SGLang gives no number for the position it starts at.
        (work_pb2.LogprobsOptions(prompt_start=3), True, 2),
    ],
    ids=["none", "output", "asked ids", "whole prompt", "end of prompt"],
)
def test_logprobs_are_asked_for(options, returned, start):
    result = converted(logprobs=options)
    assert (result.return_logprob, result.logprob_start_len) == (returned, start)
    assert list(result.token_ids_logprob) == list(options.token_ids)


def test_logprobs_from_beyond_the_prompt_are_refused():
    with pytest.raises(InvalidRequest, match="prompt_start is 4; allowed: 0 to 3"):
        converted(logprobs=work_pb2.LogprobsOptions(prompt_start=4))


def test_choices_are_one_request():
    result = generate_to_sglang(work_pb2.Generate(prompt_ids=ids(1)), "rid", NO_DEFAULTS, choices=5)
    assert result.sampling_params.n == 5


def test_top_logprobs_are_asked_for():
    assert converted(logprobs=work_pb2.LogprobsOptions(output=True, top_k=5)).top_logprobs_num == 5


def test_a_score_generates_nothing_and_asks_for_the_labels():
    result = score_to_sglang(ids(1, 2), [5, 6], work_pb2.Score(lora="a"), "rid")
    assert result.sampling_params.HasField("max_new_tokens")
    assert (result.sampling_params.max_new_tokens, result.sampling_params.n) == (0, 1)
    assert (list(result.token_ids_logprob), result.return_logprob, result.logprob_start_len) == (
        [5, 6],
        True,
        -1,
    )
    assert (list(result.tokenized.input_ids), result.lora_id, result.stream) == ([1, 2], "a", False)


def test_a_label_of_several_tokens_is_scored_as_the_end_of_a_prompt():
    result = score_label_to_sglang(ids(1, 2), ids(5, 6, 7), work_pb2.Score(), "rid")
    assert list(result.tokenized.input_ids) == [1, 2, 5, 6, 7]
    assert result.logprob_start_len == 1


def test_an_embedding_with_an_adapter_is_refused():
    with pytest.raises(InvalidRequest, match="'a'"):
        embed_to_sglang(work_pb2.Embed(input_ids=ids(1), lora="a"), "rid")


def test_names_are_the_request_ids_where_they_are_free():
    names = RequestNames()
    assert names.take("chatcmpl-1", 1) == "chatcmpl-1"
    assert names.take("chatcmpl-1", 2) == "~2-chatcmpl-1"
    assert names.take("", 3) == "~3-"
    names.free("chatcmpl-1")
    names.free("chatcmpl-1")
    assert names.take("chatcmpl-1", 4) == "chatcmpl-1"


@given(
    st.lists(st.tuples(st.text("a~-12", max_size=4), st.none() | st.integers(0, 30)), min_size=1, max_size=30)
)
def test_no_name_in_use_is_the_beginning_of_another(steps):
    # An abort ends every request whose name begins with the one it gives.
    names, used = RequestNames(), []
    for sequence, (request_id, freed) in enumerate(steps, 1):
        name = names.take(request_id, sequence)
        assert not any(name.startswith(other) or other.startswith(name) for other in used)
        used.append(name)
        if freed is not None and freed < len(used):
            names.free(used.pop(freed))


def medium(offset, rows, **fields):
    pixels = work_pb2.Tensor(name="pixel_values", dtype="float32", shape=(rows, 1), data=b"\1\0\0\0" * rows)
    grid = work_pb2.Tensor(name="image_grid_thw", dtype="int64", shape=(1, 1), data=bytes([offset] + [0] * 7))
    values = {
        "modality": "image",
        "offset": offset,
        "length": 2,
        "placeholder_id": 9,
        "tensors": [grid, pixels],
    }
    return work_pb2.Medium(**{**values, **fields})


def test_images_are_joined_along_the_first_axis():
    got = converted(prompt_ids=ids(1, 9, 9, 2, 9, 9), media=[medium(1, 2), medium(4, 3)]).mm_inputs
    assert (list(got.pixel_values.shape), got.pixel_values.dtype) == ([5, 1], "float32")
    assert got.pixel_values.data == b"\1\0\0\0" * 5
    grid = got.model_specific_tensors["image_grid_thw"]
    assert (list(grid.shape), grid.data[::8]) == ([2, 1], b"\1\4")
    assert [(each.offset, each.length) for each in got.mm_placeholders] == [(1, 2), (4, 2)]
    assert got.im_token_id == 9
    assert list(got.modalities) == ["image", "image"]


def test_images_that_cannot_be_joined_are_refused():
    other = work_pb2.Tensor(name="pixel_values", dtype="float32", shape=(1, 2), data=bytes(8))
    with pytest.raises(InvalidRequest, match=r"\[2, 1\], \[1, 2\]"):
        converted(prompt_ids=ids(1, 9, 9, 9, 9), media=[medium(1, 2), medium(3, 1, tensors=[other])])
