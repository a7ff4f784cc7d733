"""validate_chat: what breaks a rule is named with its value and what is allowed; what breaks none passes."""

import math

import pytest

from smg.errors import InvalidRequest
from smg.validation.chat import validate_chat
from smg_proto.chat.v1 import chat_pb2, message_pb2, options_pb2

ToolChoice = options_pb2.ToolChoice
ResponseFormat = options_pb2.ResponseFormat
TOOLS = [message_pb2.Tool(type="function", name=name) for name in ("a", "b")]


def request(**fields):
    sampling = options_pb2.SamplingOptions(**fields.pop("sampling", {}))
    messages = fields.pop("messages", [message_pb2.ChatMessage(role="user", text="hi")])
    return chat_pb2.ChatRequest(
        model=fields.pop("model", "m"), messages=messages, sampling=sampling, **fields
    )


def fault(message):
    with pytest.raises(InvalidRequest) as caught:
        validate_chat(message)
    assert caught.value.code == "400"
    return caught.value


def test_a_plain_request_passes():
    validate_chat(request())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_k", 0),
        ("top_k", -2),
        ("min_p", 1.1),
        ("presence_penalty", -2.5),
        ("frequency_penalty", 2.5),
        ("repetition_penalty", 2.5),
        ("max_tokens", 0),
        ("max_completion_tokens", -1),
        ("min_tokens", -1),
    ],
)
def test_a_sampling_number_out_of_range_is_named(field, value):
    error = fault(request(sampling={field: value}))
    assert error.param == field
    assert field in error.message
    assert "allowed" in error.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.0),
        ("temperature", 2.0),
        ("top_p", 1.0),
        ("top_k", -1),
        ("top_k", 1),
        ("min_p", 0.0),
        ("repetition_penalty", 2.0),
        ("max_tokens", 1),
    ],
)
def test_the_ends_of_a_range_are_allowed(field, value):
    validate_chat(request(sampling={field: value}))


def test_a_whole_number_past_its_bound_is_told_in_full():
    assert "2147483648" in fault(request(sampling={"top_k": 2**31})).message


def test_all_faults_are_told_at_once():
    error = fault(request(sampling={"temperature": 3, "top_p": 2}, n=0))
    assert all(name in error.message for name in ("temperature", "top_p", "n is 0"))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"rid": "x" * 257}, "rid"),
        ({"rid": "a\n\0b"}, "rid"),
        ({"sampling": {"stop_token_ids": range(5000)}}, "stop_token_ids"),
        ({"sampling": {"logit_bias": {str(n): 1 for n in range(5000)}}}, "logit_bias"),
        ({"messages": [message_pb2.ChatMessage(role="user", text="x")] * 20_001}, "messages"),
        ({"messages": []}, "messages"),
        ({"n": 11}, "n"),
        ({"top_logprobs": 3}, "top_logprobs"),  # without logprobs
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": options_pb2.StreamOptions()}, "stream_options"),  # without stream
        ({"sampling": {"stop": list("abcde")}}, "stop"),
        ({"sampling": {"stop": ["a", ""]}}, "stop"),
        ({"sampling": {"min_tokens": 9, "max_tokens": 8}}, "min_tokens"),
        ({"sampling": {"regex": "a", "ebnf": "b"}}, "regex"),
        ({"sampling": {"logit_bias": {"x": 1}}}, "logit_bias"),
        ({"sampling": {"logit_bias": {"-1": 1}}}, "logit_bias"),
        ({"sampling": {"logit_bias": {"99999999999": 1}}}, "logit_bias"),
        ({"sampling": {"logit_bias": {"5": math.nan}}}, "logit_bias"),
        ({"thinking": options_pb2.Thinking(type="maybe")}, "thinking.type"),
        (
            {"response_format": ResponseFormat(type=ResponseFormat.TYPE_JSON_SCHEMA)},
            "response_format.json_schema.name",
        ),
        (
            {
                "sampling": {"ebnf": "x"},
                "response_format": ResponseFormat(type=ResponseFormat.TYPE_JSON_OBJECT),
            },
            "ebnf",
        ),
        ({"tools": [message_pb2.Tool(type="function")]}, "tools[0].function.name"),
        ({"tools": TOOLS * 2049}, "tools"),
        ({"tools": [message_pb2.Tool(name="a", description="d" * 1_000_000)] * 5}, "tools"),
        ({"tools": [message_pb2.Tool(name='a"')]}, "tools[0].function.name"),
        ({"tools": [message_pb2.Tool(name="a" * 257)]}, "tools[0].function.name"),
        ({"tools": [message_pb2.Tool(name="a", parameters_json="[]")]}, "tools[0].function.parameters"),
        (
            {"tools": [message_pb2.Tool(name="a", parameters_json='{"$ref":"#"}')]},
            "tools[0].function.parameters",
        ),
        ({"tools": [message_pb2.Tool(name="a", source_json="x")]}, "tools[0]"),
        ({"tools": [message_pb2.Tool(name="a", source_json='{"a":' * 300 + "1" + "}" * 300)]}, "tools[0]"),
        ({"tools": TOOLS, "tool_choice": ToolChoice(mode=9)}, "tool_choice.mode"),
        ({"response_format": ResponseFormat(type=9)}, "response_format.type"),
        ({"chat_template_kwargs_json": "[]"}, "chat_template_kwargs"),
        ({"chat_template_kwargs_json": '{"a":1e999}'}, "chat_template_kwargs"),
        ({"chat_template_kwargs_json": '{"messages":[]}'}, "chat_template_kwargs"),
        ({"reasoning_effort": "x" * 65}, "reasoning_effort"),
        ({"sampling": {"stop": ["x" * 4097]}}, "stop"),
        ({"sampling": {"regex": ""}}, "regex"),
        ({"sampling": {"ebnf": "x" * 65_537}}, "ebnf"),
        ({"sampling": {"lora_path": "x" * 1025}}, "lora_path"),
        ({"tool_choice": ToolChoice(mode=ToolChoice.MODE_REQUIRED)}, "tool_choice"),  # without tools
    ],
)
def test_a_broken_rule_names_its_field(fields, param):
    assert fault(request(**fields)).param == param


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (message_pb2.ChatMessage(role="root", text="x"), "messages[0].role"),
        (message_pb2.ChatMessage(role="user"), "messages[0].content"),
        (message_pb2.ChatMessage(role="user", text=""), "messages[0].content"),
        (message_pb2.ChatMessage(role="user", parts=message_pb2.ContentParts()), "messages[0].content"),
        (message_pb2.ChatMessage(role="tool", text="x"), "messages[0].tool_call_id"),
        (message_pb2.ChatMessage(role="tool", tool_call_id="1"), "messages[0].content"),
    ],
    ids=str,
)
def test_a_message_that_cannot_be_used_is_named(message, param):
    assert fault(request(messages=[message])).param == param


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_content_is_optional_where_the_api_says_so(role):
    user = message_pb2.ChatMessage(role="user", text="x")
    validate_chat(request(messages=[message_pb2.ChatMessage(role=role), user]))


def test_many_bad_messages_give_a_short_answer():
    messages = [message_pb2.ChatMessage(role="nobody", text="x")] * 1000
    assert len(fault(request(messages=messages)).message) < 2000


@pytest.mark.parametrize(
    ("choice", "is_allowed"),
    [
        (ToolChoice(mode=ToolChoice.MODE_NONE), True),
        (ToolChoice(mode=ToolChoice.MODE_REQUIRED), True),
        (ToolChoice(mode=ToolChoice.MODE_FUNCTION, name="a"), True),
        (ToolChoice(mode=ToolChoice.MODE_FUNCTION, name="c"), False),
        (ToolChoice(mode=ToolChoice.MODE_AUTO, is_allowed_tools=True, allowed_names=["b"]), True),
        (ToolChoice(mode=ToolChoice.MODE_AUTO, is_allowed_tools=True, allowed_names=["b", "c"]), False),
    ],
    ids=str,
)
def test_a_tool_choice_must_name_tools_that_exist(choice, is_allowed):
    message = request(tools=TOOLS, tool_choice=choice)
    if is_allowed:
        validate_chat(message)
    else:
        assert "'c'" in fault(message).message


HUGE = "x" * 1_000_000


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [message_pb2.ChatMessage(role=HUGE, text="x")] * 10},
        {"tools": [message_pb2.Tool(name=HUGE)] * 10},
        {"tools": [message_pb2.Tool(name="\0" * 256)] * 1000},
        {"tools": TOOLS, "tool_choice": ToolChoice(mode=ToolChoice.MODE_FUNCTION, name=HUGE)},
        {
            "tools": [message_pb2.Tool(name=f"{n}{HUGE}") for n in range(9)],
            "tool_choice": ToolChoice(is_allowed_tools=True, allowed_names=["c"] * 1000),
        },
        {"thinking": options_pb2.Thinking(type=HUGE, effort=HUGE), "reasoning_effort": HUGE},
        {
            "sampling": {
                "stop": [HUGE],
                "logit_bias": {HUGE: 1},
                "regex": HUGE,
                "ebnf": HUGE,
                "lora_path": HUGE,
            }
        },
        {"rid": HUGE},
        {"chat_template_kwargs_json": HUGE},
        {"response_format": ResponseFormat(type=ResponseFormat.TYPE_JSON_SCHEMA, schema_json=HUGE)},
    ],
    ids=lambda fields: " ".join(fields) + str(len(str(fields))),
)
def test_whatever_is_wrong_the_answer_is_short(fields):
    assert len(fault(request(**fields)).message) < 4000
