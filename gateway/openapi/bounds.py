"""The rules that are no ranges, as JSON Schema keywords by member and kind. The numbers are those that smg checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg.responses.request import EFFORTS, INCLUDABLE, SUMMARIES, TIERS, TRUNCATIONS
from smg.types.context import MAX_ID_LENGTH
from smg.validation.chat import MAX_EFFORT_CHARS
from smg.validation.completion import MAX_CHOICES
from smg.validation.messages import MAX_MESSAGES, ROLES
from smg.validation.sampling import (
    MAX_CONSTRAINT_CHARS,
    MAX_ID_DIGITS,
    MAX_LISTED_IDS,
    MAX_LORA_CHARS,
    MAX_STOP_CHARS,
    MAX_STOP_SEQUENCES,
)
from smg.validation.tools import MAX_NAME_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping

    Bounds = Mapping[str, Mapping[str, dict[str, Any]]]

_STOP = {"minLength": 1, "maxLength": MAX_STOP_CHARS}
_CONSTRAINT = {"string": {"minLength": 1, "maxLength": MAX_CONSTRAINT_CHARS}}
_WORDS = {"string": {"enum": ["none", "auto", "required"]}}
# No quotes, backslashes, line breaks and control characters.
_TOOL_NAME = r'^[^"\\\u0000-\u001f\u007f-\u009f\u2028\u2029]*$'

SHARED: Bounds = {
    "model": {"string": {"minLength": 1}},
    "rid": {"string": {"maxLength": MAX_ID_LENGTH, "pattern": "^[!-~]*$"}},
    "stop": {"string": _STOP, "array of string": {"maxItems": MAX_STOP_SEQUENCES, "items": _STOP}},
    "stop_token_ids": {"array of integer": {"maxItems": MAX_LISTED_IDS}},
    "logit_bias": {
        "object": {
            "maxProperties": MAX_LISTED_IDS,
            "propertyNames": {"pattern": f"^[0-9]{{1,{MAX_ID_DIGITS}}}$"},
        }
    },
    "regex": _CONSTRAINT,
    "ebnf": _CONSTRAINT,
    "lora_path": {"string": {"maxLength": MAX_LORA_CHARS}},
}

CHAT: Bounds = {
    **SHARED,
    "messages": {"array of object": {"minItems": 1, "maxItems": MAX_MESSAGES}},
    "tool_choice": _WORDS,
    "function_call": _WORDS,
    "reasoning_effort": {"string": {"maxLength": MAX_EFFORT_CHARS}},
}

COMPLETION: Bounds = {
    **SHARED,
    "prompt": {
        "array of string": {"minItems": 1, "maxItems": MAX_CHOICES},
        "array of integer": {"minItems": 1},
        "array of array": {"minItems": 1, "maxItems": MAX_CHOICES, "items": {"minItems": 1}},
    },
}

RESPONSE: Bounds = {
    "input": {"string": {"minLength": 1}, "array of object": {"minItems": 1}},
    "stop": SHARED["stop"],
    "service_tier": {"string": {"enum": [*TIERS]}},
    "truncation": {"string": {"enum": [*TRUNCATIONS]}},
    "include": {"array of string": {"items": {"enum": [*INCLUDABLE]}}},
}
# By the names that the document has for the shapes inside a body.
INSIDE: Mapping[str, Bounds] = {
    "Reasoning": {"effort": {"string": {"enum": [*EFFORTS]}}, "summary": {"string": {"enum": [*SUMMARIES]}}},
    "Message": {"role": {"string": {"enum": [*ROLES]}}},
    "Function": {
        "name": {"string": {"minLength": 1, "maxLength": MAX_NAME_CHARS, "pattern": _TOOL_NAME}},
        "parameters": {"any": {"type": ["object", "null"]}},
    },
    "Thinking": {"effort": {"string": {"maxLength": MAX_EFFORT_CHARS}}},
}


def _needs_true(member: str, switch: str) -> dict[str, Any]:
    """A member that is set needs another to be true."""
    is_on = {"required": [switch], "properties": {switch: {"const": True}}}
    return {member: {"anyOf": [_is_null(member), is_on]}}


def _is_null(member: str) -> dict[str, Any]:
    return {"properties": {member: {"type": "null"}}}


_SHARED_DEPENDENT = {
    **_needs_true("stream_options", "stream"),
    "regex": {"anyOf": [_is_null("regex"), _is_null("ebnf")]},
}
# Rules between members, by schema. Those that compare numbers, or that look into another list, have no keyword.
JOINED: Mapping[str, dict[str, Any]] = {
    "ChatRequest": {"dependentSchemas": {**_SHARED_DEPENDENT, **_needs_true("top_logprobs", "logprobs")}},
    "CompletionRequest": {"dependentSchemas": _SHARED_DEPENDENT},
    # Beside another type the schema is not looked at.
    "ResponseFormat": {
        "if": {"properties": {"type": {"const": "json_schema"}}},
        "then": {
            "required": ["json_schema"],
            "properties": {
                "json_schema": {
                    "type": "object",
                    "properties": {"name": {"minLength": 1}, "schema": {"type": "object"}},
                }
            },
        },
    },
    "Message": {
        "if": {"properties": {"role": {"enum": ["system", "assistant"]}}},
        "else": {
            "required": ["content"],
            "properties": {"content": {"type": ["string", "array"]}},
            "if": {"properties": {"role": {"const": "user"}}},
            "then": {"properties": {"content": {"minLength": 1, "minItems": 1}}},
            "else": {
                "if": {"properties": {"role": {"const": "tool"}}},
                "then": {
                    "required": ["tool_call_id"],
                    "properties": {"tool_call_id": {"type": "string"}},
                },
            },
        },
    },
}
