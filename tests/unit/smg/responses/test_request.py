"""Rules of a request for a response: what is refused, how, and with which field named."""

import json

import pytest

from smg.errors import InvalidRequest, MalformedRequest
from smg.responses.request import read_request
from smg_proto.chat.v1 import options_pb2
from smg_proto.responses.v1 import responses_pb2

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = {**OPEN, "additionalProperties": False}
NAMESPACE = {"type": "namespace", "name": "ns", "tools": [FUNCTION]}


def mcp(label="s", **more):
    return {"type": "mcp", "server_label": label, **more}


def message(*, items=None, tools=None, choice=None, text=None, metadata=None, sampling=None, **fields):
    result = responses_pb2.ResponseRequest(**{"model": "m", "input_text": "Hi", **fields})
    if items is not None:
        result.input_items_json = json.dumps(items)
    for name, value in (("tools", tools), ("tool_choice", choice), ("text", text), ("metadata", metadata)):
        if value is not None:
            setattr(result, f"{name}_json", json.dumps(value))
    result.sampling.CopyFrom(options_pb2.SamplingOptions(**(sampling or {})))
    return result


def schema(**more):
    return {"format": {"type": "json_schema", "name": "n", "schema": OPEN, **more}}


RULES = [
    ({"sampling": {"max_completion_tokens": 15}}, "max_output_tokens"),
    ({"sampling": {"temperature": 2.5}}, "temperature"),
    ({"sampling": {"top_p": 0}}, "top_p"),
    ({"sampling": {"top_k": 0}}, "top_k"),
    ({"sampling": {"stop": [""]}}, "stop"),
    ({"max_tool_calls": 0}, "max_tool_calls"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: ""}}, "metadata"),
    ({"metadata": {"k": "v" * 513}}, "metadata"),
    ({"input_text": ""}, "input"),
    ({"items": []}, "input"),
    ({"items": [{"role": "alien", "content": "x"}]}, "input[0].role"),
    ({"items": [{"role": "user", "content": ""}]}, "input[0].content"),
    ({"choice": "auto"}, "tool_choice"),
    ({"choice": {"type": "function", "name": "g"}, "tools": [FUNCTION]}, "tool_choice"),
    ({"choice": {"type": "function", "name": "f", "namespace": "no"}, "tools": [NAMESPACE]}, "tool_choice"),
    ({"tools": [{**FUNCTION, "parameters": "x"}]}, "tools[0].parameters"),
    ({"tools": [mcp("1a")]}, "tools[0].server_label"),
    ({"tools": [mcp("a"), mcp("A")]}, "tools[1].server_label"),
    ({"text": schema(name="")}, "text.format.name"),
    ({"text": schema(schema=[])}, "text.format.schema"),
    ({"request_id": "a b"}, "request_id"),
    ({"conversation": "invalid-id"}, "conversation"),
    ({"model": "gpt-4.1", "text": schema(strict=True)}, "text.format.schema"),
    ({"model": "x/openai/gpt-4.1", "tools": [{**FUNCTION, "strict": True, "parameters": OPEN}]}, "tools[0]"),
    ({"model": "o3-mini", "text": {"format": {"type": "json_object"}}}, "input"),
]
SHAPES = [
    ({"include": ["nothing"]}, "include[0]"),
    ({"service_tier": "gold"}, "service_tier"),
    ({"truncation": "maybe"}, "truncation"),
    ({"reasoning": {"effort": "much"}}, "reasoning.effort"),
    ({"items": [{"type": "weird"}]}, "input[0].type"),
    ({"items": [{"role": "user", "content": [{"type": "weird"}]}]}, "input[0].content[0].type"),
    ({"items": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name"),
    ({"tools": [{"type": "namespace", "tools": []}]}, "tools[0].name"),
    ({"tools": [{**NAMESPACE, "tools": [mcp()]}]}, "tools[0].tools[0].type"),
    ({"tools": [mcp(server_url="http://a", connector_id="c")]}, "tools[0]"),
    ({"tools": [mcp(require_approval="sometimes")]}, "tools[0].require_approval"),
    ({"tools": [mcp(allowed_tools=[1])]}, "tools[0].allowed_tools[0]"),
    ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "schema": OPEN}}}, "text.format.name"),
    ({"choice": "sometimes", "tools": [FUNCTION]}, "tool_choice"),
]


@pytest.mark.parametrize(("fields", "param"), RULES)
def test_a_broken_rule_is_a_400_that_begins_with_the_field(fields, param):
    with pytest.raises(InvalidRequest) as caught:
        read_request(message(**fields))
    assert caught.value.code == "400"
    assert (caught.value.param or "").startswith(param)
    assert caught.value.message.startswith(param) or param == "input"


@pytest.mark.parametrize(("fields", "param"), SHAPES)
def test_a_wrong_shape_is_a_json_parse_error(fields, param):
    with pytest.raises(MalformedRequest) as caught:
        read_request(message(**fields))
    assert caught.value.code == "json_parse_error"
    assert caught.value.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "gpt-4.1", "text": schema(strict=True, schema=CLOSED)},
        {"model": "gpt-oss-20b", "text": schema(strict=True)},
        {"model": "openai/gpt-oss-20b", "text": schema(strict=True)},
        {"model": "Qwen/Qwen3-8B", "text": schema(strict=True)},
        {"model": "gpt-4o", "instructions": "Answer in JSON", "text": {"format": {"type": "json_object"}}},
        {"top_logprobs": 5},
        {"choice": "none"},
        {"choice": {"type": "mcp", "server_label": "s"}, "tools": [mcp()]},
        {"items": [{"type": "function_call_output", "call_id": "c", "output": ""}]},
        {"tools": [{"type": "web_search", "external_web_access": False}, {"type": "shell"}]},
    ],
)
def test_what_is_allowed_passes(fields):
    read_request(message(**fields))


def test_the_texts_that_clients_know_are_kept():
    with pytest.raises(InvalidRequest) as caught:
        read_request(message(previous_response_id="resp_1", conversation="conv_1"))
    assert caught.value.message == (
        "__all__: Mutually exclusive parameters. Ensure you are only providing one of: "
        "'previous_response_id' or 'conversation'."
    )
    with pytest.raises(InvalidRequest) as caught:
        read_request(message(conversation="invalid-id"))
    assert caught.value.message == (
        "conversation: Invalid 'conversation': 'invalid-id'. Expected an ID that begins with 'conv_'."
    )
    with pytest.raises(InvalidRequest) as caught:
        read_request(message(tools=[{"type": "local_shell"}]))
    assert caught.value.code == "tool_not_supported"


def test_a_reasoning_object_without_effort_means_medium():
    assert read_request(message()).effort == ""
    assert read_request(message(reasoning={})).effort == "medium"
    assert read_request(message(reasoning={"effort": "xhigh"})).effort == "xhigh"
