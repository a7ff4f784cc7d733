"""template_messages: what templates get to read, and which messages they cannot."""

import json

import pytest

from smg.errors import InvalidRequest
from smg.pipelines.messages import (
    template_messages,
    template_tool_choice,
    template_tools,
    template_variables,
)
from smg_proto.chat.v1 import message_pb2, options_pb2

Message, Part, Parts = message_pb2.ChatMessage, message_pb2.ContentPart, message_pb2.ContentParts
DEEP = "[" * 100_000 + "]" * 100_000


def test_text_parts_stay_parts_for_the_builder_to_fit():
    message = Message(role="user", parts=Parts(parts=[Part(text="a"), Part(text="b")]))
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert template_messages([message]) == [{"role": "user", "content": parts}]
    assert template_messages([Message(role="system", parts=Parts())]) == [{"role": "system", "content": []}]


def test_a_refusal_is_what_the_turn_holds_when_nothing_else_was_said():
    said, refused = template_messages(
        [Message(role="assistant", text="b", refusal="no"), Message(role="assistant", refusal="no")]
    )
    assert said == {"role": "assistant", "content": "b"}
    assert refused == {"role": "assistant", "content": "no"}


def test_a_message_without_content_is_empty_text_unless_it_calls():
    call = message_pb2.ToolCall(id="c", name="f", arguments='{"n": 12345678901234567890}')
    plain, calling = template_messages([Message(role="system"), Message(role="assistant", tool_calls=[call])])
    assert plain["content"] == ""
    assert calling["content"] is None
    assert calling["tool_calls"][0]["function"]["arguments"] == {"n": 12345678901234567890}


def test_everything_else_is_passed_on():
    message = Message(role="tool", text="5", name="n", tool_call_id="c", reasoning_content="hm")
    assert template_messages([message])[0] == {
        "role": "tool",
        "content": "5",
        "name": "n",
        "tool_call_id": "c",
        "reasoning_content": "hm",
    }


@pytest.mark.parametrize(
    ("part", "code"),
    [
        (Part(image_url=message_pb2.MediaUrl(url="http://x")), "process_messages_failed"),
        (Part(other_json="{}"), "unsupported_content_part"),
        (Part(refusal="no"), "unsupported_content_part"),
    ],
    ids=["image", "other", "refusal"],
)
def test_a_part_that_is_no_text_names_its_place(part, code):
    with pytest.raises(InvalidRequest) as caught:
        template_messages([Message(role="user", parts=Parts(parts=[Part(text="a"), part]))])
    assert (caught.value.code, caught.value.param) == (code, "messages[0].content[1]")


@pytest.mark.parametrize("arguments", ["{", DEEP], ids=["broken", "deep"])
def test_arguments_that_cannot_be_read_name_their_place(arguments):
    call = message_pb2.ToolCall(id="c", name="f", arguments=arguments)
    with pytest.raises(InvalidRequest) as caught:
        template_messages([Message(role="assistant", tool_calls=[call])])
    assert caught.value.param == "messages[0].tool_calls[0].function.arguments"


def test_tools_are_rendered_as_sent_or_from_their_fields():
    sent = message_pb2.Tool(type="function", name="f", source_json='{"type": "function", "x": 1}')
    built = message_pb2.Tool(name="f", description="d", parameters_json='{"a": 1}', strict=True)
    assert template_tools([sent, built]) == [
        {"type": "function", "x": 1},
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"a": 1}, "strict": True},
        },
    ]


def test_a_function_without_parameters_gets_none_that_templates_can_look_into():
    built = message_pb2.Tool(name="f")
    sent = [
        message_pb2.Tool(name="f", source_json=text)
        for text in (
            '{"function": {"name": "f"}, "type": "function"}',
            '{"function": {"parameters": null, "name": "f"}}',
        )
    ]
    rendered = template_tools([built, *sent])
    assert rendered is not None
    assert [tool["function"]["parameters"] for tool in rendered] == [{}, {}, {}]
    assert list(rendered[1]) == ["function", "type"]


def test_keys_and_their_order_are_the_client_s():
    text = '{"type": "function", "function": {"name": "f", "strict": true, "x": 1, "parameters": {"b": 1, "a": 2.0}}, "y": 1}'
    (tool,) = template_tools([message_pb2.Tool(name="f", source_json=text)])
    assert json.dumps(tool) == text


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, "auto"),
        ({"mode": "MODE_AUTO"}, "auto"),
        ({"mode": "MODE_NONE"}, "none"),
        ({"mode": "MODE_REQUIRED"}, "required"),
        ({"mode": "MODE_FUNCTION", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        (
            {"mode": "MODE_REQUIRED", "is_allowed_tools": True, "allowed_names": ["f"]},
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
        ),
    ],
    ids=str,
)
def test_a_tool_choice_reads_as_clients_write_it(choice, expected):
    assert template_tool_choice(options_pb2.ToolChoice(**choice)) == expected


def test_no_tools_are_none():
    assert template_tools([]) is None


@pytest.mark.parametrize(
    "tool",
    [
        message_pb2.Tool(name="f", source_json="{"),
        message_pb2.Tool(name="f", source_json="[]"),
        message_pb2.Tool(name="f", parameters_json=DEEP),
    ],
    ids=["broken", "no object", "deep"],
)
def test_a_tool_that_cannot_be_read_is_named(tool):
    with pytest.raises(InvalidRequest) as caught:
        template_tools([tool])
    assert caught.value.param.startswith("tools[0]")


def test_variables_are_a_json_object():
    assert template_variables("") == {}
    assert template_variables('{"a": 1}') == {"a": 1}
    for text in ("[]", "{", DEEP):
        with pytest.raises(InvalidRequest):
            template_variables(text)
