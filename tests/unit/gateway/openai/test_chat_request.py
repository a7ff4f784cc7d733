"""chat_request: everything that a chat body says arrives in the message, whatever form it has."""

import json

import pytest

from gateway.openai.shapes import ChatShape
from smg.errors import InvalidRequest
from tests.openai_bodies import USER, chat, error_body, read_chat

HUGE = 10**40


def test_nulls_and_unknown_members_count_as_absent():
    nulls = dict.fromkeys(ChatShape.__annotations__.keys() - {"model", "messages"})
    assert chat(**nulls, made_up={"x": 1}, store=True, service_tier="auto") == chat()


def test_nulls_inside_members_count_as_absent():
    bare = chat(thinking={}, stream=True, stream_options={})
    full = chat(
        thinking=dict.fromkeys(("type", "effort", "keep", "clear_thinking")),
        stream=True,
        stream_options=dict.fromkeys(("include_usage", "continuous_usage_stats")),
    )
    assert full == bare
    empty = dict.fromkeys(
        ("content", "name", "tool_calls", "tool_call_id", "reasoning_content", "refusal", "tools")
    )
    assert chat(messages=[{"role": "assistant", **empty}]) == chat(messages=[{"role": "assistant"}])


SCALARS = {
    "n": 3,
    "logprobs": True,
    "top_logprobs": 4,
    "parallel_tool_calls": False,
    "continue_final_message": True,
    "separate_reasoning": False,
    "stream_reasoning": False,
    "return_hidden_states": True,
    "return_audio": True,
    "rid": "r-1",
    "user": "u",
    "stream": True,
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_plain_member_arrives(name):
    assert getattr(chat(**{name: SCALARS[name]}), name) == SCALARS[name]


@pytest.mark.parametrize(
    "name", ["parallel_tool_calls", "separate_reasoning", "stream_reasoning", "logprobs", "n"]
)
def test_an_explicit_zero_is_told_from_silence(name):
    value = 0 if name == "n" else False
    assert chat(**{name: value}).HasField(name)
    assert not chat().HasField(name)


def test_stream_options_modalities_and_free_objects_arrive():
    message = chat(
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": False, "step_usage_chunks": 1},
        modalities=["text", "audio"],
        metadata={"a": "b"},
        chat_template_kwargs={"z": [1, None, 2.5], "a": {}},
    )
    assert (message.stream_options.include_usage, message.stream_options.continuous_usage_stats) == (
        True,
        False,
    )
    assert list(message.modalities) == ["text", "audio"]
    assert message.metadata_json == '{"a":"b"}'
    assert message.chat_template_kwargs_json == '{"z":[1,null,2.5],"a":{}}'


def test_contents_keep_their_kind():
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "http://x", "detail": "low", "max_long_side_pixel": 3}},
        {"type": "video_url", "video_url": {"url": "v", "fps": 2}},
        {"type": "audio_url", "audio_url": {"url": "a"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]
    odd = [
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "image_url", "image_url": "x"},
        {"type": "image_url", "image_url": {"detail": "low"}},
        {"type": "image_url", "image_url": {"url": "x", "detail": 5}},
        {"type": "input_audio", "input_audio": {"data": "AA=="}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": ["text"], "text": "x"},
        {"odd": 1},
    ]
    found = chat(messages=[{"role": "user", "content": parts + odd}]).messages[0].parts.parts
    kinds = [part.WhichOneof("kind") for part in found]
    assert kinds == ["text", "image_url", "video_url", "audio_url", "input_audio"] + ["other_json"] * len(odd)
    assert json.loads(found[1].image_url.extra_json) == {"max_long_side_pixel": 3}
    assert [json.loads(part.other_json) for part in found[len(parts) :]] == odd


def test_a_conversation_keeps_names_calls_and_reasoning():
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a": 12345678901234567890}'},
    }
    messages = chat(
        messages=[
            {**USER, "name": "bob"},
            {"role": "assistant", "tool_calls": [call], "reasoning": "hm"},
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
            {"role": "assistant", "content": "", "reasoning_content": "so", "reasoning": "other"},
            {"role": "function", "name": "f", "content": "6"},
            {"role": "system", "content": [], "tools": [{"type": "function"}]},
        ]
    ).messages
    assert messages[0].name == "bob"
    assert messages[1].tool_calls[0].arguments == '{"a": 12345678901234567890}'
    assert [messages[1].reasoning_content, messages[3].reasoning_content] == ["hm", "so"]
    assert messages[2].tool_call_id == "c1"
    assert messages[3].WhichOneof("content") == "text"
    assert messages[5].tools_json == '[{"type":"function"}]'


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("tool_calls", [{"id": None, "type": None, "function": {"name": "f", "arguments": None}}]),
        ("reasoning_content", "hm"),
        ("reasoning", "hm"),
        ("refusal", "no"),
        ("name", "bob"),
        ("tools", [1]),
    ],
)
def test_a_member_arrives_also_where_there_is_no_content(member, value):
    bare = chat(messages=[{"role": "assistant"}]).messages[0]
    without = chat(messages=[{"role": "assistant", member: value}]).messages[0]
    assert without == chat(messages=[{"role": "assistant", "content": None, member: value}]).messages[0]
    assert without != bare


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_content_may_be_missing_where_the_api_says_so(role):
    assert chat(messages=[{"role": role}]).messages[0].WhichOneof("content") is None


@pytest.mark.parametrize(
    ("message", "place"),
    [
        *(({"role": role}, "messages[0].content") for role in ("user", "developer", "tool", "function")),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
    ],
    ids=str,
)
def test_what_a_role_needs_is_named_when_it_is_missing(message, place):
    with pytest.raises(InvalidRequest) as caught:
        read_chat({"model": "m", "messages": [message]})
    assert error_body(caught.value)["code"] == "json_parse_error"
    assert caught.value.message.startswith(f"{place} is missing")


def test_tools_are_kept_as_they_were_sent():
    tool = {
        "type": "function",
        "function": {"name": "f", "parameters": {"z": 1, "a": 2}, "strict": True},
        "x": 1,
    }
    message = chat(
        tools=[tool, {"type": "weird", "function": {"name": "g", "description": "d", "parameters": None}}]
    )
    assert message.tools[0].source_json == json.dumps(tool, separators=(",", ":"))
    assert message.tools[0].parameters_json == '{"z":1,"a":2}'
    assert message.tools[0].strict
    assert (message.tools[1].type, message.tools[1].description) == ("weird", "d")
    assert not message.tools[1].parameters_json


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
    ids=lambda value: str(value)[:60],
)
def test_integers_of_any_size_in_free_json_arrive_whole(fields):
    assert str(HUGE) in str(chat(**fields))


@pytest.mark.parametrize("schema", ["x", [], True, 1, None], ids=repr)
def test_a_schema_that_is_no_object_breaks_a_rule(schema):
    with pytest.raises(InvalidRequest) as caught:
        chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    assert error_body(caught.value)["code"] == 400
    assert "response_format.json_schema.schema" in caught.value.message


def test_a_schema_keeps_its_order_and_may_be_empty():
    def schema(value):
        form = {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": value, "strict": True, "description": "d"},
        }
        return chat(response_format=form).response_format

    assert schema({}).schema_json == "{}"
    found = schema({"z": 1, "a": {"y": 1.0, "b": 2}})
    assert found.schema_json == '{"z":1,"a":{"y":1.0,"b":2}}'
    assert (found.name, found.strict, found.description) == ("n", True, "d")


@pytest.mark.parametrize(
    ("effort", "text"),
    [
        ("low", "low"),
        (5, "5"),
        (-3, "-3"),
        (0, "0"),
        (2.5, "2.5"),
        (0.5, "0.5"),
        (1234567.5, "1234567.5"),
        (1e-7, "0.0000001"),
        (1e22, "10000000000000000000000"),
    ],
)
def test_a_number_as_effort_is_its_decimal_string(effort, text):
    assert chat(reasoning_effort=effort).reasoning_effort == text


def test_thinking_arrives_whole_and_without_what_we_do_not_know():
    given = {"type": "disabled", "effort": "max", "keep": "all", "clear_thinking": False}
    found = chat(thinking={**given, "budget_tokens": 5}).thinking
    assert {name: getattr(found, name) for name in given} == given
    assert found.HasField("clear_thinking")
