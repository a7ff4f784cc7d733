"""template_messages: what templates get to read, and which messages they cannot."""

import pytest

from smg.errors import InvalidRequest
from smg.pipelines.messages import template_messages, template_tools, template_variables
from smg_proto.chat.v1 import message_pb2

Message, Part, Parts = message_pb2.ChatMessage, message_pb2.ContentPart, message_pb2.ContentParts
DEEP = "[" * 100_000 + "]" * 100_000


def test_text_parts_are_joined_because_templates_print_strings():
    message = Message(role="user", parts=Parts(parts=[Part(text="a"), Part(text="b")]))
    assert template_messages([message]) == [{"role": "user", "content": "ab"}]


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
