"""ChatMessages: items become the messages that a model would have seen."""

import pytest

from smg.errors import InvalidRequest
from smg.responses.conversation import ChatMessages
from smg.responses.reasoning import sealed


def messages(*items):
    chat = ChatMessages()
    chat.add(items)
    return chat.messages


def call(call_id="call_1", name="f", arguments="{}", **more):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(text, call_id="call_1"):
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def said(role, content):
    return {"type": "message", "role": role, "content": content}


def test_reasoning_text_and_calls_of_one_go_are_one_message():
    reasoning = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
    chat = messages(
        said("user", "Hi"), reasoning, said("assistant", "Let me see."), call(), call("call_2"), output("1"),
        output("2", "call_2"),
    )  # fmt: skip
    assert [message.role for message in chat] == ["user", "assistant", "tool", "tool"]
    assistant = chat[1]
    assert (assistant.reasoning_content, assistant.text) == ("hm", "Let me see.")
    assert [each.id for each in assistant.tool_calls] == ["call_1", "call_2"]
    assert (chat[3].tool_call_id, chat[3].text) == ("call_2", "2")


def test_a_blob_of_ours_is_reasoning_again_and_anybody_elses_is_nothing():
    ours, other = ({"type": "reasoning", "encrypted_content": blob} for blob in (sealed("thought"), "gAAAA"))
    assert messages(ours, said("assistant", "a"))[0].reasoning_content == "thought"
    assert not messages(other, said("assistant", "a"))[0].HasField("reasoning_content")


def test_namespaces_and_custom_tools_have_the_names_and_arguments_that_the_model_knows():
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "x", "input": 'a"b'}
    (message,) = messages(call(namespace="ns"), custom)
    assert [(each.name, each.arguments) for each in message.tool_calls] == [
        ("ns.f", "{}"),
        ("x", '{"input":"a\\"b"}'),
    ]


def test_parts_of_an_output_are_joined_and_media_refused():
    parts = [{"type": "input_text", "text": "18"}, {"type": "input_text", "text": "C"}]
    assert messages(output(parts))[0].text == "18C"
    with pytest.raises(InvalidRequest) as caught:
        messages(output([{"type": "input_image", "image_url": "data:,"}]))
    assert caught.value.code == "convert_request_failed"


def test_calls_that_were_cut_off_and_records_of_servers_are_left_out():
    listed = {"type": "mcp_list_tools", "server_label": "s", "tools": []}
    done = {"type": "mcp_call", "id": "mcp_1", "name": "add", "arguments": "{}", "output": "5"}
    failed = {**done, "id": "mcp_2", "output": "", "error": {"type": "http_error", "message": "gone"}}
    chat = messages(call(status="incomplete", arguments='{"a'), listed, done, failed)
    assert [(each.role, each.text) for each in chat] == [
        ("assistant", ""),
        ("tool", "5"),
        ("assistant", ""),
        ("tool", "gone"),
    ]


def test_an_answer_to_no_call_is_found():
    chat = ChatMessages()
    chat.add([call(), output("1")])
    chat.check_answers()
    chat.add([output("2", "call_2")])
    with pytest.raises(InvalidRequest, match="No function call found for call_id: call_2") as caught:
        chat.check_answers()
    assert caught.value.code == "harmony_build_failed"


def test_developers_are_named_in_words():
    (message,) = messages(said("developer", "dev"))
    assert (message.role, message.text) == ("system", "Developer instructions:\ndev")
