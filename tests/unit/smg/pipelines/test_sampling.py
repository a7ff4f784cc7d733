"""engine_sampling and its neighbours: all that a client sets reaches the engine's message, and nothing else does."""

import pytest

from smg.pipelines.sampling import constraint, engine_sampling, text_options
from smg.validation.rules import set_fields
from smg_proto.chat.v1 import options_pb2
from smg_proto.engine.v1 import card_pb2, work_pb2


def engine(**options):
    return engine_sampling(set_fields(options_pb2.SamplingOptions(**options)))


# A client's option, and what of the engine's message it becomes. Zeros stand beside other values: both are said.
TABLE = [
    *(
        ({name: value}, {name: value})
        for name in ("temperature", "min_p", "presence_penalty", "frequency_penalty")
        for value in (0.75, 0.0)
    ),
    ({"top_p": 0.95}, {"top_p": 0.95}),
    ({"top_k": 40}, {"top_k": 40}),
    ({"top_k": -1}, {"top_k": -1}),
    ({"repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
    ({"repetition_penalty": 0.0}, {"repetition_penalty": 1e-6}),  # engines divide by it
    ({"max_tokens": 5}, {"max_new_tokens": 5}),
    ({"max_tokens": 0}, {"max_new_tokens": 0}),
    ({"max_completion_tokens": 6}, {"max_new_tokens": 6}),
    ({"max_completion_tokens": 6, "max_tokens": 5}, {"max_new_tokens": 6}),
    ({"max_tokens": 2**31 - 1}, {"max_new_tokens": 2**31 - 1}),
    ({"min_tokens": 3}, {"min_new_tokens": 3}),
    ({"min_tokens": 0}, {"min_new_tokens": 0}),
    ({"seed": 7}, {"seed": 7}),
    ({"seed": 0}, {"seed": 0}),
    ({"seed": -(2**63)}, {"seed": -(2**63)}),
    ({"sampling_seed": 8}, {"seed": 8}),
    ({"sampling_seed": 0, "seed": 7}, {"seed": 0}),
    ({"stop": ["a", "b"]}, {"stop": ["a", "b"]}),
    ({"stop_token_ids": [0, 5]}, {"stop_token_ids": [0, 5]}),
    ({"ignore_eos": True}, {"ignore_eos": True}),
    ({"logit_bias": {"5": -1.5}}, {"logit_bias_token": [5], "logit_bias_value": [-1.5]}),
    ({"logit_bias": {"0": 0.0}}, {"logit_bias_token": [0], "logit_bias_value": [0.0]}),
    ({"logit_bias": {"5": 200}}, {"logit_bias_token": [5], "logit_bias_value": [100]}),
    ({"logit_bias": {"5": -1e300}}, {"logit_bias_token": [5], "logit_bias_value": [-100]}),
    # These are ours to do, or stand elsewhere in the engine's message.
    *(({name: True}, {}) for name in ("no_stop_trim", "skip_special_tokens")),
    *(({name: "x"}, {}) for name in ("regex", "ebnf", "lora_path")),
    ({}, {}),
]


@pytest.mark.parametrize(("options", "expected"), TABLE, ids=str)
def test_an_option_reaches_the_engine(options, expected):
    assert engine(**options) == card_pb2.Sampling(**expected)


def test_the_table_has_every_option():
    named = {name for options, _ in TABLE for name in options}
    assert named == {field.name for field in options_pb2.SamplingOptions.DESCRIPTOR.fields}


def test_biases_keep_their_tokens():
    sampling = engine(logit_bias={"1": 1, "20": -2, "300": 3})
    assert dict(zip(sampling.logit_bias_token, sampling.logit_bias_value, strict=True)) == {
        1: 1,
        20: -2,
        300: 3,
    }


def test_choices_differ_in_their_index_alone():
    fields = set_fields(options_pb2.SamplingOptions(seed=3, temperature=0))
    first, third = engine_sampling(fields), engine_sampling(fields, choice_index=2)
    assert not first.HasField("choice_index")
    first.choice_index = 2
    assert first == third


def text(**options):
    return text_options(set_fields(options_pb2.SamplingOptions(**options)), logprobs=False)


def test_options_of_the_text_are_taken_over():
    assert text(stop=["a"]).stop == ("a",)
    assert text(stop_token_ids=[5]).stop_token_ids == {5}
    assert [text(no_stop_trim=value).keep_stop for value in (True, False)] == [True, False]
    assert [text(skip_special_tokens=value).skip_special_tokens for value in (True, False)] == [True, False]
    assert text().skip_special_tokens
    assert not text().keep_stop


@pytest.mark.parametrize(
    ("options", "schema", "expected"),
    [
        ({}, None, None),
        ({"regex": "a+"}, None, work_pb2.Constraint(regex="a+")),
        ({"ebnf": "root ::= x"}, None, work_pb2.Constraint(ebnf="root ::= x")),
        ({}, "{}", work_pb2.Constraint(json_schema="{}")),
    ],
    ids=str,
)
def test_a_constraint_reaches_the_engine(options, schema, expected):
    assert constraint(set_fields(options_pb2.SamplingOptions(**options)), schema) == expected
