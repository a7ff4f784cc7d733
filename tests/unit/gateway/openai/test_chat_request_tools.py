"""tool_choice in all its forms, and the API's older names of tools and choices."""

import json

import pytest

from smg.errors import InvalidRequest, MalformedRequest
from smg_proto.chat.v1 import options_pb2
from tests.openai_bodies import chat, error_body

Mode = options_pb2.ToolChoice


def allowed(mode, *names):
    return {
        "type": "allowed_tools",
        "mode": mode,
        "tools": [{"type": "function", "name": name} for name in names],
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", Mode(mode=Mode.MODE_NONE)),
        ("auto", Mode(mode=Mode.MODE_AUTO)),
        ("required", Mode(mode=Mode.MODE_REQUIRED)),
        ({"type": "function", "function": {"name": "f"}}, Mode(mode=Mode.MODE_FUNCTION, name="f")),
        ({"type": "function", "function": {"name": ""}}, Mode(mode=Mode.MODE_FUNCTION)),
        (
            allowed("auto", "f", "g"),
            Mode(mode=Mode.MODE_AUTO, is_allowed_tools=True, allowed_names=["f", "g"]),
        ),
        (allowed("required", "f"), Mode(mode=Mode.MODE_REQUIRED, is_allowed_tools=True, allowed_names=["f"])),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "f"}}],
            },
            Mode(mode=Mode.MODE_AUTO, is_allowed_tools=True, allowed_names=["f"]),
        ),
        (allowed("auto"), Mode(mode=Mode.MODE_AUTO, is_allowed_tools=True)),
    ],
    ids=str,
)
def test_tool_choices_are_understood(choice, expected):
    assert chat(tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize(
    "choice",
    [
        "maybe",
        "",
        {},
        {"type": "function"},
        {"type": "function", "name": "f"},
        {"type": "function", "function": {}},
        {"type": "function", "function": {"name": 5}},
        {"type": "custom", "custom": {"name": "f"}},
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "tools": []},
        {"type": "allowed_tools", "mode": "auto"},
        {"type": "allowed_tools", "mode": 5, "tools": []},
        {"type": "allowed_tools", "mode": "auto", "tools": [1]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}]},
        {"type": "allowed_tools", "allowed_tools": allowed("auto", "f")},
    ],
    ids=str,
)
def test_tool_choices_of_no_known_form_are_refused(choice):
    with pytest.raises(MalformedRequest) as caught:
        chat(tool_choice=choice)
    assert caught.value.param == "tool_choice"
    assert "allowed_tools" in error_body(caught.value)["message"]


def test_a_mode_of_allowed_tools_that_there_is_not_breaks_a_rule():
    with pytest.raises(InvalidRequest) as caught:
        chat(tool_choice=allowed("sometimes", "f"))
    assert error_body(caught.value)["code"] == 400
    assert caught.value.message == "tool_choice.mode is 'sometimes'; allowed are auto and required"


FUNCTIONS = [{"name": "f", "description": "d", "parameters": {"type": "object"}}]


def test_functions_are_the_older_name_of_tools():
    found = chat(functions=FUNCTIONS).tools
    assert found == chat(tools=[{"type": "function", "function": FUNCTIONS[0]}]).tools
    assert json.loads(found[0].source_json) == {"type": "function", "function": FUNCTIONS[0]}


@pytest.mark.parametrize(
    ("call", "choice"),
    [("none", "none"), ("auto", "auto"), ({"name": "f"}, {"type": "function", "function": {"name": "f"}})],
    ids=str,
)
def test_function_call_is_the_older_name_of_tool_choice(call, choice):
    assert chat(functions=FUNCTIONS, function_call=call).tool_choice == chat(tool_choice=choice).tool_choice


def test_the_newer_names_win():
    tools = [{"type": "function", "function": {"name": "g"}}]
    message = chat(functions=FUNCTIONS, tools=tools, function_call="none", tool_choice="auto")
    assert [tool.name for tool in message.tools] == ["g"]
    assert message.tool_choice.mode == Mode.MODE_AUTO


def test_a_function_call_of_no_known_form_is_refused():
    with pytest.raises(MalformedRequest, match="function_call is 'maybe'"):
        chat(functions=FUNCTIONS, function_call="maybe")
