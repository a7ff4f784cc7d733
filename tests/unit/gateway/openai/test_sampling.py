"""sampling_options: each sampling member arrives under its own name, on both endpoints, zero and false included."""

import pytest

from gateway.openai.shapes import SamplingShape
from tests.openai_bodies import chat, completion

VALUES = {
    "temperature": (0.95, 0),
    "top_p": (0.95, 1),
    "top_k": (5, -1),
    "min_p": (0.1, 0),
    "presence_penalty": (1, 0),
    "frequency_penalty": (-1.5, 0),
    "repetition_penalty": (1.1, 0),
    "max_completion_tokens": (7, 0),
    "max_tokens": (7, 0),
    "min_tokens": (2, 0),
    "seed": (-3, 0),
    "sampling_seed": (2**62, 0),
    "stop": (["a", "b"], ["x"]),
    "stop_token_ids": ([1, 2**32 - 1], [0]),
    "logit_bias": ({"5": -1.0, "6": 0.0}, {"5": 0.0}),
    "ignore_eos": (True,),
    "no_stop_trim": (True,),
    "skip_special_tokens": (False, True),
    "regex": ("a+",),
    "ebnf": ('root ::= "a"',),
    "lora_path": ("l",),
}


def test_the_table_has_every_member():
    assert VALUES.keys() == SamplingShape.__annotations__.keys()


@pytest.mark.parametrize("make", [chat, completion], ids=["chat", "completion"])
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in VALUES for value in VALUES[name]], ids=str
)
def test_a_member_arrives(make, name, value):
    sampling = make(**{name: value}).sampling
    found = getattr(sampling, name)
    if isinstance(value, list):
        found = list(found)
    assert (dict(found) if isinstance(value, dict) else found) == value
    assert {field.name for field, _ in sampling.ListFields()} == {name}


@pytest.mark.parametrize("make", [chat, completion], ids=["chat", "completion"])
def test_one_stop_sequence_is_a_list_of_one(make):
    assert list(make(stop="x").sampling.stop) == ["x"]


@pytest.mark.parametrize("make", [chat, completion], ids=["chat", "completion"])
def test_empty_lists_and_objects_count_as_absent(make):
    assert make(stop=[], stop_token_ids=[], logit_bias={}).sampling == make().sampling


def test_a_fraction_is_not_widened():
    assert chat(top_p=0.95).sampling.top_p == 0.95
