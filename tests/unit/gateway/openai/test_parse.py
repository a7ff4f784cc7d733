"""parse_body and chat_request: every shape fault is a json_parse_error that says where; the rest arrives whole."""

import json

import pytest

from gateway.openai.chat_request import chat_request
from gateway.openai.completion_request import completion_request
from gateway.openai.parse import parse_body
from gateway.openai.shapes import CHAT, COMPLETION
from gateway.request import HttpRequest
from smg.errors import InvalidRequest, MalformedRequest
from smg.types.context import RequestContext
from smg_proto.chat.v1 import options_pb2

USER = {"role": "user", "content": "hi"}


def http(body, content_type=b"application/json"):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {} if content_type is None else {b"content-type": content_type}
    return HttpRequest("POST", "/", "/", "", headers, raw, RequestContext("r"), {})


def chat(**fields):
    shape, data = parse_body(http({"model": "m", "messages": [USER], **fields}), CHAT)
    return chat_request(shape, data)


def malformed(body, shape=CHAT, content_type=b"application/json"):
    with pytest.raises(MalformedRequest) as caught:
        parse_body(http(body, content_type), shape)
    assert caught.value.code == "json_parse_error"
    return caught.value.message


@pytest.mark.parametrize("content_type", [None, b"", b"text/plain", b"application/x-json"])
def test_a_body_must_be_declared_as_json(content_type):
    assert "application/json" in malformed({"model": "m", "messages": [USER]}, content_type=content_type)


@pytest.mark.parametrize(
    "content_type", [b"application/json; charset=utf-8", b"Application/JSON", b"application/x+json"]
)
def test_json_may_be_declared_in_other_ways(content_type):
    parse_body(http({"model": "m", "messages": [USER]}, content_type), CHAT)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b"true",
        b'{"model":"m"} x',
        b'{"model":"m","messages":[],"temperature":NaN}',
        b'{"model":"m","messages":[],"temperature":Infinity}',
        b'{"model":"\xff","messages":[]}',
        b'{"model":"\\ud800","messages":[]}',
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    ],
    ids=lambda body: repr(body[:60]),
)
def test_what_is_not_json_is_refused(body):
    assert malformed(body)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"messages": [USER, {"content": "x"}]}, "messages[1].role"),
        ({"stream": "yes"}, "stream"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"temperature": "1"}, "temperature"),
        ({"n": True}, "n"),
        ({"stop": 5}, "stop"),
        ({"stop": [5]}, "stop"),
        ({"logit_bias": {"1": "x"}}, "logit_bias.1"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"stream_options": []}, "stream_options"),
        ({"thinking": "on"}, "thinking"),
    ],
    ids=str,
)
def test_a_wrong_shape_names_the_place(fields, place):
    assert malformed({"model": "m", "messages": [USER], **fields}).startswith(place)


def test_a_number_beyond_every_float_is_refused():
    assert malformed(b'{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":1e400}')


def test_unknown_members_and_nulls_are_ignored():
    message = chat(made_up={"x": 1}, temperature=None, stop=None, tools=None)
    assert not message.sampling.HasField("temperature")
    assert not message.tools


def test_every_sampling_member_arrives():
    given = {
        "temperature": 0.5,
        "top_p": 0.95,
        "top_k": 5,
        "min_p": 0.1,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "repetition_penalty": 1.1,
        "max_completion_tokens": 7,
        "min_tokens": 2,
        "seed": -3,
        "sampling_seed": 2**62,
        "stop_token_ids": [1, 2],
        "ignore_eos": True,
        "no_stop_trim": True,
        "skip_special_tokens": False,
        "regex": "a+",
        "lora_path": "l",
    }
    sampling = chat(**given, stop="x", logit_bias={"5": -1}).sampling
    for name, value in given.items():
        found = getattr(sampling, name)
        assert (list(found) if name == "stop_token_ids" else found) == value
    assert list(sampling.stop) == ["x"]
    assert dict(sampling.logit_bias) == {"5": -1.0}


@pytest.mark.parametrize(
    "fields", [{"seed": 2**64}, {"stop_token_ids": [-1]}, {"stop_token_ids": [2**40]}, {"n": 2**70}], ids=str
)
def test_an_integer_that_no_engine_takes_is_a_fault_of_the_request(fields):
    with pytest.raises(InvalidRequest):
        chat(**fields)


def test_contents_keep_their_kind():
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "http://x", "detail": "low", "max_long_side_pixel": 3}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "text"},
        {"type": "image_url", "image_url": "x"},
        {"odd": 1},
    ]
    message = chat(messages=[{"role": "user", "content": parts}, {"role": "assistant"}]).messages
    kinds = [part.WhichOneof("kind") for part in message[0].parts.parts]
    assert kinds == ["text", "image_url", "input_audio", "other_json", "other_json", "other_json"]
    assert json.loads(message[0].parts.parts[1].image_url.extra_json) == {"max_long_side_pixel": 3}
    assert message[1].WhichOneof("content") is None


def test_history_keeps_calls_and_reasoning():
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a": 12345678901234567890}'},
    }
    messages = chat(
        messages=[
            USER,
            {"role": "assistant", "tool_calls": [call], "reasoning": "hm"},
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
        ]
    ).messages
    assert messages[1].tool_calls[0].arguments == '{"a": 12345678901234567890}'
    assert messages[1].reasoning_content == "hm"
    assert messages[2].tool_call_id == "c1"


def test_tools_are_kept_as_they_were_sent():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}, "extra": 1}
    message = chat(tools=[tool])
    assert message.tools[0].source_json == json.dumps(tool, separators=(",", ":"))
    assert message.tools[0].parameters_json == '{"z":1,"a":2}'


Mode = options_pb2.ToolChoice


@pytest.mark.parametrize(
    ("choice", "mode", "names"),
    [
        ("auto", Mode.MODE_AUTO, []),
        ("required", Mode.MODE_REQUIRED, []),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "f"}}],
            },
            Mode.MODE_REQUIRED,
            ["f"],
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            },
            Mode.MODE_AUTO,
            ["f"],
        ),
    ],
    ids=str,
)
def test_tool_choices_are_understood(choice, mode, names):
    found = chat(tool_choice=choice).tool_choice
    assert (found.mode, list(found.allowed_names)) == (mode, names)


@pytest.mark.parametrize(
    "choice",
    [
        "maybe",
        {},
        {"type": "function"},
        {"type": "allowed_tools", "mode": "x", "tools": []},
        {"type": "allowed_tools", "tools": [1]},
    ],
    ids=str,
)
def test_tool_choices_of_no_known_form_are_refused(choice):
    with pytest.raises(MalformedRequest):
        chat(tool_choice=choice)


@pytest.mark.parametrize("schema", ["x", [], True, 1, None], ids=repr)
def test_a_schema_that_is_no_object_breaks_a_rule(schema):
    with pytest.raises(InvalidRequest) as caught:
        chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    assert caught.value.code == "400"


def test_an_empty_schema_is_one():
    message = chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {}}})
    assert message.response_format.schema_json == "{}"


@pytest.mark.parametrize(("effort", "text"), [("low", "low"), (3, "3"), (0.5, "0.5")])
def test_effort_may_be_a_number(effort, text):
    assert chat(reasoning_effort=effort).reasoning_effort == text


def completion(**fields):
    shape, _ = parse_body(http({"model": "m", "prompt": "x", **fields}), COMPLETION)
    return completion_request(shape)


@pytest.mark.parametrize(
    ("prompt", "kinds"),
    [
        ("a", ["text"]),
        (["a", ""], ["text", "text"]),
        ([1, 2], ["token_ids"]),
        ([[1], [2]], ["token_ids"] * 2),
        ([], []),
    ],
    ids=str,
)
def test_prompts_of_every_form(prompt, kinds):
    assert [each.WhichOneof("kind") for each in completion(prompt=prompt).prompts] == kinds


@pytest.mark.parametrize("prompt", [None, 5, {}, ["a", 1], [[1], "a"], [[1.5]]], ids=str)
def test_prompts_of_no_known_form_are_refused(prompt):
    malformed({"model": "m", "prompt": prompt}, COMPLETION)


@pytest.mark.parametrize("prompt", [[-1], [[2**33]]], ids=str)
def test_a_token_id_that_is_none_breaks_a_rule(prompt):
    with pytest.raises(InvalidRequest):
        completion(prompt=prompt)


HUGE = 10**40


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"a": HUGE}},
        {"chat_template_kwargs": {"a": HUGE}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"maximum": HUGE}}}]},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"maximum": HUGE}},
            }
        },
        {"messages": [{"role": "user", "content": [{"type": "x", "y": HUGE}]}]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "z": HUGE}}]}
            ]
        },
        {"messages": [{"role": "user", "content": "x", "tools": [HUGE]}]},
    ],
    ids=str,
)
def test_integers_of_any_size_in_free_json_arrive_whole(fields):
    assert str(HUGE) in str(chat(**fields))


@pytest.mark.parametrize("effort", [10**400, -(10**400)], ids=["plus", "minus"])
def test_an_effort_of_any_size_is_text(effort):
    assert len(chat(reasoning_effort=effort).reasoning_effort) == 64


@pytest.mark.parametrize("inner", [None, 5, [], "x"], ids=repr)
def test_allowed_tools_of_no_known_form_are_refused(inner):
    with pytest.raises(MalformedRequest):
        chat(tool_choice={"type": "allowed_tools", "allowed_tools": inner})


def test_the_first_wrong_message_is_enough():
    assert malformed({"model": "m", "messages": [1] * 100_000}).startswith("messages[0]")
