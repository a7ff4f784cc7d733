"""validate_completion: the rules of text completions."""

import pytest

from smg.errors import InvalidRequest
from smg.validation.completion import validate_completion
from smg_proto.chat.v1 import completion_pb2, options_pb2

Prompt = completion_pb2.CompletionPrompt


def request(**fields):
    sampling = options_pb2.SamplingOptions(**fields.pop("sampling", {}))
    prompts = fields.pop("prompts", [Prompt(text="x")])
    return completion_pb2.CompletionRequest(model="m", prompts=prompts, sampling=sampling, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 128},
        {"sampling": {"max_tokens": 0}},
        {"best_of": 3, "n": 2},
        {"logprobs": 5},
        {"prompts": [Prompt(text="")]},
        {"sampling": {"max_completion_tokens": 0}},
        {"json_schema": "{}"},
        {"json_schema": " " * 1_000_000 + "{}", "n": 32},
        {"prompts": [Prompt(token_ids=completion_pb2.TokenIds(ids=[1]))]},
    ],
)
def test_what_the_api_allows_passes(fields):
    validate_completion(request(**fields))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompts": []}, "prompt"),
        ({"prompts": [Prompt(token_ids=completion_pb2.TokenIds())]}, "prompt[0]"),
        ({"prompts": [Prompt(text="x"), Prompt()]}, "prompt[1]"),  # neither text nor ids
        ({"prompts": [Prompt(text="x")] * 60, "best_of": 20}, "prompt"),
        ({"sampling": {"max_completion_tokens": -1}}, "max_completion_tokens"),
        ({"json_schema": "x"}, "json_schema"),
        ({"json_schema": " " * 1_000_000 + "{}", "prompts": [Prompt(text="x")] * 17, "n": 2}, "json_schema"),
        ({"json_schema": '{"$ref": "#"}'}, "json_schema"),
        ({"n": 129}, "n"),
        ({"prompts": [Prompt(text="x")] * 9, "n": 128}, "prompt"),  # more choices than one request may have
        ({"rid": "x y"}, "rid"),
        ({"n": 0}, "n"),
        ({"best_of": 21}, "best_of"),
        ({"best_of": 2, "n": 2}, "best_of"),  # must be greater than n
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"logprobs": 6}, "logprobs"),
        ({"stream_options": options_pb2.StreamOptions()}, "stream_options"),
        ({"sampling": {"max_tokens": -1}}, "max_tokens"),
        ({"json_schema": "{}", "sampling": {"regex": "a"}}, "regex"),
    ],
)
def test_a_broken_rule_names_its_field(fields, param):
    with pytest.raises(InvalidRequest) as caught:
        validate_completion(request(**fields))
    assert caught.value.param == param
