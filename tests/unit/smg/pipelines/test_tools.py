"""Tools and tool choice: which tools the model sees, and the schema that makes a forced call certain."""

import json

import jsonschema
import pytest

from smg.errors import InvalidRequest
from smg.pipelines.tools import forced_schema, is_forced, usable_tools
from smg_proto.chat.v1 import chat_pb2, message_pb2, options_pb2

CHOICE = options_pb2.ToolChoice
POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}


def tool(name, parameters=None):
    text = json.dumps(parameters) if parameters is not None else ""
    return message_pb2.Tool(type="function", name=name, parameters_json=text)


def request(*tools, choice=None, **fields):
    return chat_pb2.ChatRequest(model="m", tools=tools, tool_choice=choice, **fields)


def schema_of(*tools, mode=CHOICE.MODE_REQUIRED, **fields):
    return json.loads(forced_schema(request(*tools, choice=CHOICE(mode=mode), **fields)))


def accepts(schema, value):
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def test_no_tool_is_usable_with_tool_choice_none():
    assert usable_tools(request(tool("a"), choice=CHOICE(mode=CHOICE.MODE_NONE))) == []


def test_allowed_tools_restrict_the_tools_and_keep_their_order():
    choice = CHOICE(mode=CHOICE.MODE_AUTO, is_allowed_tools=True, allowed_names=["c", "a"])
    assert [each.name for each in usable_tools(request(tool("a"), tool("b"), tool("c"), choice=choice))] == [
        "a",
        "c",
    ]


@pytest.mark.parametrize(
    ("choice", "forced"),
    [
        (None, False),
        (CHOICE(mode=CHOICE.MODE_AUTO), False),
        (CHOICE(mode=CHOICE.MODE_NONE), False),
        (CHOICE(mode=CHOICE.MODE_REQUIRED), True),
        (CHOICE(mode=CHOICE.MODE_FUNCTION, name="a"), True),
    ],
    ids=["unset", "auto", "none", "required", "named"],
)
def test_required_and_named_choices_force_a_call(choice, forced):
    assert is_forced(request(tool("a"), choice=choice)) == forced


def test_required_takes_calls_of_every_tool_and_nothing_else():
    schema = schema_of(tool("go", POINT), tool("stop"))
    assert accepts(schema, [{"name": "go", "parameters": {"x": 1}}, {"name": "stop", "parameters": {}}])
    for wrong in (
        [],
        {"name": "go", "parameters": {"x": 1}},
        [{"name": "go", "parameters": {}}],
        [{"name": "fly", "parameters": {}}],
        [{"name": "go"}],
        [{"name": "go", "parameters": {"x": 1}, "more": 1}],
    ):
        assert not accepts(schema, wrong), wrong


def test_without_parallel_calls_there_is_room_for_one():
    schema = schema_of(tool("stop"), parallel_tool_calls=False)
    call = {"name": "stop", "parameters": {}}
    assert accepts(schema, [call])
    assert not accepts(schema, [call, call])
    assert accepts(schema_of(tool("stop"), parallel_tool_calls=True), [call, call])


def test_a_named_function_is_answered_with_its_arguments():
    choice = CHOICE(mode=CHOICE.MODE_FUNCTION, name="go")
    assert json.loads(forced_schema(request(tool("stop"), tool("go", POINT), choice=choice))) == POINT


@pytest.mark.parametrize("parameters", [None, {}, "null"], ids=str)
def test_a_function_without_parameters_takes_any_object(parameters):
    text = parameters if isinstance(parameters, str) else None
    one = message_pb2.Tool(name="a", parameters_json=text) if text else tool("a", parameters)
    choice = CHOICE(mode=CHOICE.MODE_FUNCTION, name="a")
    schema = json.loads(forced_schema(request(one, choice=choice)))
    assert accepts(schema, {})
    assert not accepts(schema, [])


def with_definition(definition, key="$defs"):
    return {
        "type": "object",
        "properties": {"p": {"$ref": f"#/{key}/P"}},
        "required": ["p"],
        key: {"P": definition},
    }


@pytest.mark.parametrize("key", ["$defs", "definitions"])
def test_references_of_several_tools_lead_to_their_own_definitions(key):
    text, number = {"type": "string"}, {"type": "number"}
    schema = schema_of(tool("a", with_definition(text, key)), tool("b", with_definition(number, key)))
    assert accepts(schema, [{"name": "a", "parameters": {"p": "x"}}, {"name": "b", "parameters": {"p": 1}}])
    assert not accepts(schema, [{"name": "a", "parameters": {"p": 1}}])
    assert not accepts(schema, [{"name": "b", "parameters": {"p": "x"}}])


def test_a_definition_that_refers_to_itself_still_does():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/P"}}, "additionalProperties": False}
    schema = schema_of(tool("a", with_definition({"type": "null"})), tool("b", with_definition(node)))
    assert accepts(schema, [{"name": "b", "parameters": {"p": {"next": {"next": {}}}}}])
    assert not accepts(schema, [{"name": "b", "parameters": {"p": {"next": {"other": {}}}}}])


def test_a_name_given_twice_counts_once():
    schema = schema_of(tool("a", POINT), tool("a"))
    assert accepts(schema, [{"name": "a", "parameters": {}}])


@pytest.mark.parametrize(
    "parameters",
    [{"properties": {"x": {"type": "number"}}, "required": ["x"]}, {"type": ["string", "object"]}],
    ids=["no type", "several types"],
)
@pytest.mark.parametrize("mode", [CHOICE.MODE_REQUIRED, CHOICE.MODE_FUNCTION], ids=["required", "named"])
def test_the_arguments_of_a_forced_call_are_an_object_whatever_else_the_schema_allows(parameters, mode):
    choice = CHOICE(mode=mode, name="a" if mode == CHOICE.MODE_FUNCTION else "")
    schema = json.loads(forced_schema(request(tool("a", parameters), choice=choice)))

    def arguments(value):
        return value if mode == CHOICE.MODE_FUNCTION else [{"name": "a", "parameters": value}]

    assert accepts(schema, arguments({"x": 1}))
    assert not accepts(schema, arguments("x"))


@pytest.mark.parametrize("kind", ["string", ["array", "null"]], ids=str)
def test_a_function_that_takes_no_object_cannot_be_forced(kind):
    with pytest.raises(InvalidRequest, match="parameters of 'a' have the type") as fault:
        schema_of(tool("a", {"type": kind}))
    assert fault.value.param == "tools"


def test_references_to_the_whole_of_a_tools_parameters_and_into_them_keep_their_meaning():
    tree = {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "twin": {"$ref": "#/properties/value"},
            "next": {"$ref": "#"},
        },
        "required": ["value"],
        "additionalProperties": False,
    }
    schema = schema_of(tool("a", tree), tool("b", POINT))
    assert accepts(schema, [{"name": "a", "parameters": {"value": 1, "next": {"value": 2, "twin": 3}}}])
    for wrong in ({"value": 1, "next": [{"name": "b", "parameters": {"x": 1}}]}, {"value": 1, "twin": "x"}):
        assert not accepts(schema, [{"name": "a", "parameters": wrong}]), wrong


def test_definitions_may_have_any_names_and_the_schema_an_id():
    names = {"x/b": {"type": "integer"}, "b": {"type": "boolean"}, "c d~": {"type": "null"}}
    places = {"p": "x~1b", "q": "b", "r": "c%20d~0"}
    properties = {key: {"$ref": f"#/$defs/{place}"} for key, place in places.items()}
    parameters = {"$id": "http://x/y", "type": "object", "properties": properties, "$defs": names}
    schema = schema_of(tool("a", parameters))
    assert accepts(schema, [{"name": "a", "parameters": {"p": 1, "q": True, "r": None}}])
    for wrong in ({"p": True}, {"q": 1}, {"r": 1}):
        assert not accepts(schema, [{"name": "a", "parameters": wrong}]), wrong


def test_what_only_looks_like_a_reference_is_left_alone():
    parameters = {
        "type": "object",
        "properties": {
            "$ref": {"const": {"$ref": "#/x"}},
            "enum": {"$ref": "#/properties/n"},
            "n": {"type": "integer"},
        },
    }
    schema = schema_of(tool("a", parameters))
    assert accepts(schema, [{"name": "a", "parameters": {"$ref": {"$ref": "#/x"}, "enum": 1}}])
    assert not accepts(schema, [{"name": "a", "parameters": {"enum": "x"}}])
