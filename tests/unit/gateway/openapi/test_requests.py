"""A body is documented as allowed exactly if the shapes and rules allow it, but for rules that join members."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from gateway.openai.chat_request import chat_request
from gateway.openai.completion_request import completion_request
from gateway.openai.shapes import CHAT, COMPLETION
from gateway.openapi.narrow import narrow_member, narrow_number
from gateway.openapi.requests import body_schema
from smg.errors import InvalidRequest
from smg.types.context import MAX_ID_LENGTH
from smg.validation import rules
from smg.validation.chat import MAX_EFFORT_CHARS, validate_chat
from smg.validation.completion import MAX_CHOICES, validate_completion
from smg.validation.messages import MAX_MESSAGES, ROLES
from smg.validation.rules import Range
from smg.validation.sampling import (
    MAX_CONSTRAINT_CHARS,
    MAX_ID_DIGITS,
    MAX_LISTED_IDS,
    MAX_LORA_CHARS,
    MAX_STOP_CHARS,
    MAX_STOP_SEQUENCES,
)
from smg.validation.tools import MAX_NAME_CHARS
from tests.unit.gateway.openapi.judge import named

CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION_BODY = {"model": "m", "prompt": "hi"}
KINDS = {
    # top_logprobs needs logprobs.
    "chat": (CHAT, "ChatRequest", {**CHAT_BODY, "logprobs": True}, {**rules.CHAT, **rules.CHAT_SAMPLING}),
    "completion": (
        COMPLETION,
        "CompletionRequest",
        COMPLETION_BODY,
        {**rules.COMPLETION, **rules.COMPLETION_SAMPLING},
    ),
}
RANGES = [(kind, name) for kind, (*_, ranges) in KINDS.items() for name in ranges]


def fits(shape, body):
    try:
        shape.validate_python(body)
    except ValidationError:
        return False
    return True


def edges(allowed):
    """Values at the bounds of a range and right beside them."""
    finite = [
        bound
        for bound in (allowed.low, allowed.high, allowed.also)
        if bound is not None and math.isfinite(bound)
    ]
    return [
        *(bound + step for bound in finite for step in (-1, 0, 1)),
        *(math.nextafter(bound, bound + step) for bound in finite for step in (-1, 1)),
    ]


@pytest.mark.parametrize(("kind", "name"), RANGES, ids=str)
def test_a_range_of_the_rules_is_that_of_the_document(kind, name):
    shape, schema, body, ranges = KINDS[kind]
    verdicts = set()
    for value in edges(ranges[name]):
        whole = {**body, name: value}
        # JSON Schema takes 1.0 for an integer, and we do not: what is not an integer is not compared.
        if isinstance(value, float) and value.is_integer():
            continue
        expected = fits(shape, whole) and ranges[name].allows(value)
        assert named(schema).is_valid(whole) == expected, value
        verdicts.add(expected)
    assert verdicts == {True, False}


@given(data=st.data())
def test_any_number_is_allowed_by_both_or_neither(data):
    kind, name = data.draw(st.sampled_from(RANGES))
    shape, schema, body, ranges = KINDS[kind]
    value = data.draw(
        st.integers(-(2**66), 2**66)
        | st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: not value.is_integer())
    )
    whole = {**body, name: value}
    assert named(schema).is_valid(whole) == (fits(shape, whole) and ranges[name].allows(value))


def test_a_range_of_no_member_fails_the_making_of_the_document():
    with pytest.raises(LookupError):
        body_schema(CHAT, {"no_such_member": Range(0, 1)}, {}, {})
    with pytest.raises(LookupError, match="takes no number"):
        body_schema(CHAT, {"user": Range(0, 1)}, {}, {})


def test_a_rule_of_no_kind_fails_the_making_of_the_document():
    with pytest.raises(LookupError, match="a rule for array of string"):
        body_schema(CHAT, {}, {"user": {"array of string": {"maxItems": 1}}}, {})


def test_the_narrower_of_two_bounds_counts():
    schema = {"type": "integer", "minimum": 0, "maximum": 10}
    narrow_number(schema, Range(-5, 20))
    assert schema == {"type": "integer", "minimum": 0, "maximum": 10}
    narrow_number(schema, Range(3, 7))
    assert schema == {"type": "integer", "minimum": 3, "maximum": 7}
    schema = {"type": "array", "items": {"type": "string", "minLength": 3}, "minItems": 1}
    narrow_member(schema, {"array of string": {"minItems": 4, "items": {"minLength": 2, "maxLength": 9}}})
    assert schema == {
        "type": "array",
        "items": {"type": "string", "minLength": 3, "maxLength": 9},
        "minItems": 4,
    }


def accepted_chat(body):
    try:
        validate_chat(chat_request(CHAT.validate_python(body), body))
    except (ValidationError, InvalidRequest):
        return False
    return True


def accepted_completion(body):
    try:
        validate_completion(completion_request(COMPLETION.validate_python(body)))
    except (ValidationError, InvalidRequest):
        return False
    return True


def tool(name="f", **members):
    return {"tools": [{"type": "function", "function": {"name": name, **members}}]}


def schema_format(schema, name="s"):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}}


SHARED_CASES = [
    ({"model": ""}, False),
    ({"stop": ""}, False),
    ({"stop": "x" * MAX_STOP_CHARS}, True),
    ({"stop": "x" * (MAX_STOP_CHARS + 1)}, False),
    ({"stop": ["x"] * MAX_STOP_SEQUENCES}, True),
    ({"stop": ["x"] * (MAX_STOP_SEQUENCES + 1)}, False),
    ({"stop": ["x", ""]}, False),
    ({"stop": None, "temperature": None, "n": None}, True),
    ({"stop_token_ids": [0] * MAX_LISTED_IDS}, True),
    ({"stop_token_ids": [0] * (MAX_LISTED_IDS + 1)}, False),
    ({"stop_token_ids": [-1]}, False),
    ({"stop_token_ids": [2**32]}, False),
    ({"logit_bias": {str(n): 1 for n in range(MAX_LISTED_IDS)}}, True),
    ({"logit_bias": {str(n): 1 for n in range(MAX_LISTED_IDS + 1)}}, False),
    ({"logit_bias": {"0" * MAX_ID_DIGITS: 1}}, True),
    ({"logit_bias": {"0" * (MAX_ID_DIGITS + 1): 1}}, False),
    ({"logit_bias": {"-1": 1}}, False),
    ({"logit_bias": {"7": "much"}}, False),
    ({"rid": "r" * MAX_ID_LENGTH}, True),
    ({"rid": "r" * (MAX_ID_LENGTH + 1)}, False),
    ({"rid": "two words"}, False),
    ({"rid": "é"}, False),
    ({"regex": ""}, False),
    ({"regex": "a" * MAX_CONSTRAINT_CHARS}, True),
    ({"ebnf": "a" * (MAX_CONSTRAINT_CHARS + 1)}, False),
    ({"lora_path": "a" * MAX_LORA_CHARS}, True),
    ({"lora_path": "a" * (MAX_LORA_CHARS + 1)}, False),
    ({"stream_options": {"include_usage": True}}, False),
    ({"stream_options": {"include_usage": True}, "stream": False}, False),
    ({"stream_options": {"include_usage": True}, "stream": None}, False),
    ({"stream_options": {"include_usage": True}, "stream": True}, True),
    ({"stream_options": None}, True),
    ({"regex": "a", "ebnf": "b"}, False),
    ({"regex": "a", "ebnf": None}, True),
    ({"regex": None, "ebnf": "b"}, True),
    ({"seed": 2**63 - 1}, True),
    ({"seed": 2**63}, False),
    ({"stream": "yes"}, False),
    ({"temperature": "1"}, False),
    ({"temperature": True}, False),
    ({"some_other_member": {"of": ["any", "kind"]}}, True),
]
CHAT_CASES = [
    ({"messages": []}, False),
    ({"messages": [*CHAT_BODY["messages"]] * MAX_MESSAGES}, True),
    ({"messages": [*CHAT_BODY["messages"]] * (MAX_MESSAGES + 1)}, False),
    *(({"messages": [{"role": role, "content": "x", "tool_call_id": "c"}]}, True) for role in ROLES),
    *(({"messages": [{"role": role}]}, role in ("system", "assistant")) for role in ROLES),
    *(
        (
            {"messages": [{"role": role, "content": None, "tool_call_id": "c"}]},
            role in ("system", "assistant"),
        )
        for role in ROLES
    ),
    *(
        ({"messages": [{"role": role, "content": empty, "tool_call_id": "c"}]}, role != "user")
        for role in ROLES
        for empty in ("", [])
    ),
    *(({"messages": [{"role": role, "content": "x"}]}, role != "tool") for role in ROLES),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": None}]}, False),
    ({"top_logprobs": 1}, False),
    ({"top_logprobs": 1, "logprobs": False}, False),
    ({"top_logprobs": 1, "logprobs": True}, True),
    ({"top_logprobs": None}, True),
    ({"messages": [{"role": "root", "content": "x"}]}, False),
    ({"messages": [{"role": "robot", "content": "x"}]}, False),
    ({"messages": [{"content": "x"}]}, False),
    ({"messages": ["x"]}, False),
    ({"tool_choice": "none"}, True),
    ({"tool_choice": "auto"}, True),
    ({**tool(), "tool_choice": "required"}, True),
    ({**tool(), "tool_choice": "sometimes"}, False),
    ({**tool(), "function_call": "sometimes"}, False),
    (tool("f" * MAX_NAME_CHARS), True),
    (tool("f" * (MAX_NAME_CHARS + 1)), False),
    (tool(""), False),
    (tool("météo.v2 (neu)"), True),
    *((tool(f"a{character}b"), False) for character in '"\\\n\x00\x1f\x7f\x9f\u2028\u2029'),
    (tool(parameters={}), True),
    (tool(parameters=None), True),
    (tool(parameters="{}"), False),
    (tool(parameters=True), False),
    ({"tools": [{"type": "function"}]}, False),
    (schema_format({}), True),
    (schema_format({}, name=""), False),
    *((schema_format(schema), False) for schema in (None, True, "{}", [], 1)),
    ({"response_format": {"type": "text", "json_schema": {"name": "", "schema": 1}}}, True),
    ({"response_format": {"type": "json_schema"}}, False),
    ({"response_format": {"type": "json_schema", "json_schema": None}}, False),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "s"}}}, False),
    ({"response_format": {"type": "json_object"}}, True),
    ({"response_format": {"type": "xml"}}, False),
    ({"reasoning_effort": "e" * MAX_EFFORT_CHARS}, True),
    ({"reasoning_effort": "e" * (MAX_EFFORT_CHARS + 1)}, False),
    ({"reasoning_effort": 3}, True),
    ({"thinking": {"type": "enabled", "effort": "e" * MAX_EFFORT_CHARS}}, True),
    ({"thinking": {"effort": "e" * (MAX_EFFORT_CHARS + 1)}}, False),
    ({"thinking": {"type": "maybe"}}, False),
]
COMPLETION_CASES = [
    ({"prompt": []}, False),
    ({"prompt": ["x"] * MAX_CHOICES}, True),
    ({"prompt": ["x"] * (MAX_CHOICES + 1)}, False),
    ({"prompt": [[1]] * (MAX_CHOICES + 1)}, False),
    ({"prompt": [7] * (MAX_CHOICES + 1)}, True),
    ({"prompt": [[1, 2], []]}, False),
    ({"prompt": [[1, 2], [3]]}, True),
    ({"prompt": ["x", 1]}, False),
    ({"prompt": [-1]}, False),
    ({"prompt": None}, False),
]


def numbered(cases):
    return [
        pytest.param(members, expected, id=f"{n}-{'-'.join(members)}")
        for n, (members, expected) in enumerate(cases)
    ]


@pytest.mark.parametrize(("members", "expected"), numbered([*SHARED_CASES, *CHAT_CASES]))
def test_a_chat_body_is_documented_as_it_is_judged(members, expected):
    body = {**CHAT_BODY, **members}
    assert (named("ChatRequest").is_valid(body), accepted_chat(body)) == (expected, expected)


@pytest.mark.parametrize(("members", "expected"), numbered([*SHARED_CASES, *COMPLETION_CASES]))
def test_a_completion_body_is_documented_as_it_is_judged(members, expected):
    body = {**COMPLETION_BODY, **members}
    assert (named("CompletionRequest").is_valid(body), accepted_completion(body)) == (expected, expected)


def test_members_named_like_keywords_keep_their_names():
    shape = TypedDict("shape", {"title": str, "description": str, "$ref": int})
    schema = body_schema(TypeAdapter(shape), {"$ref": Range(1, 3)}, {}, {})
    assert schema["properties"]["$ref"] == {"type": "integer", "minimum": 1, "maximum": 3}
    assert schema["properties"].keys() == {"title", "description", "$ref"}
