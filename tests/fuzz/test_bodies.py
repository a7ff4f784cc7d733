"""Request bodies that are almost right: each becomes an engine's prompt and numbers, or a short 4xx; never anything else.

The ordinary run is small and the same every time; the slow one looks further.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.errors import error_answer
from smg.errors import SmgError
from smg.pipelines.messages import template_messages, template_tools, template_variables
from smg.pipelines.prompt_limits import never_empty
from smg.pipelines.sampling import constraint, engine_sampling, text_options
from smg.prompt.builder import PromptBuilder
from smg.validation.chat import validate_chat
from smg.validation.completion import validate_completion
from smg.validation.rules import set_fields
from smg_proto.engine.v1 import card_pb2
from tests.openai_bodies import read_chat, read_completion

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smg_proto.chat.v1 import chat_pb2, completion_pb2

QUICK = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
THOROUGH = settings(QUICK, max_examples=2000)
MAX_ERROR_BYTES = 8192

SAMPLING: dict[str, Any] = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.1,
    "max_tokens": 16,
    "min_tokens": 1,
    "seed": 7,
    "sampling_seed": 8,
    "stop": ["a", "b"],
    "stop_token_ids": [1, 2],
    "logit_bias": {"5": 1.5, "6": -100},
    "ignore_eos": False,
    "no_stop_trim": True,
    "skip_special_tokens": True,
    "lora_path": "adapter",
    "user": "u",
    "rid": "r-1",
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": False},
    "n": 2,
}
SCHEMA = {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, null]}'}}
CHAT: dict[str, Any] = {
    **SAMPLING,
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}],
            "name": "bob",
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
    ],
    "max_completion_tokens": 16,
    "logprobs": True,
    "top_logprobs": 2,
    "tools": [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
        }
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "functions": [{"name": "g", "parameters": {}}],
    "function_call": {"name": "g"},
    "parallel_tool_calls": True,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
    },
    "reasoning_effort": "low",
    "thinking": {"type": "enabled", "effort": "low", "keep": "all", "clear_thinking": True},
    "continue_final_message": False,
    "chat_template_kwargs": {"enable_thinking": False, "x": {"y": [1]}},
    "metadata": {"a": "b"},
    "modalities": ["text"],
}
COMPLETION: dict[str, Any] = {
    **SAMPLING,
    "model": "m",
    "prompt": ["Hello", "World"],
    "logprobs": 2,
    "echo": True,
    "suffix": "end",
    "json_schema": json.dumps(SCHEMA),
}

TEXTS = st.sampled_from(
    [
        "",
        "x",
        "\ud83d",
        "\0",
        '"',
        "\\",
        "天気",
        "<|im_end|>",
        "-1",
        "1",
        "9" * 30,
        "NaN",
        "user",
        "x" * 5000,
        "#",
        "{}",
    ]
)
NUMBERS = st.sampled_from(
    [
        0,
        -0.0,
        1,
        -1,
        2,
        1.5,
        5,
        11,
        1e-320,
        1e308,
        float("inf"),
        float("nan"),
        2**31,
        2**32,
        2**63,
        10**30,
        10**400,
    ]
)
DEEP = st.sampled_from([1, 3, 100, 150, 250]).map(lambda depth: json.loads("[" * depth + "1" + "]" * depth))
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS | st.text(max_size=5)
KEYS = TEXTS | st.sampled_from(
    ["type", "name", "function", "role", "content", "$ref", "schema", "messages", "tools"]
)
PLAIN_VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)

# Half a character, an infinite number or 250 levels make a body unreadable, and end all further questions: they are rare.
VALUES = st.integers(0, 9).flatmap(lambda number: PLAIN_VALUES if number else DEEP)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every member and item in a value, as (container, key)."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list) and container[key]:
                waiting.append(container[key])
    return found


@st.composite
def bodies(draw: st.DrawFn, valid: dict[str, Any]) -> bytes:
    """A valid body with few of its members, some of them spoilt, and sometimes not even JSON."""
    required = {"model", "messages", "prompt", "state", "input", "questions"}
    optional = sorted(valid.keys() - required)
    kept = draw(st.sets(st.sampled_from(optional), max_size=8))
    body = copy.deepcopy({name: value for name, value in valid.items() if name in required or name in kept})
    for _ in range(draw(st.integers(0, 3))):
        container, key = draw(st.sampled_from(places(body) or [(body, "model")]))
        spoil(draw, container, key)
    raw = json.dumps(body).encode()
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(raw)))
        raw = (
            raw[:at]
            + draw(st.sampled_from([b"", b"\xff", b'"', b"{", b"\xed\xa0\x80", b"1e999", b"\0", b","]))
            + raw[at + 1 :]
        )
    return raw


def spoil(draw: st.DrawFn, container: Any, key: Any) -> None:
    """Change one member or item."""
    match draw(st.sampled_from(("tweak", "tweak", "tweak", "replace", "delete", "wrap", "add", "repeat"))):
        case "tweak" if isinstance(container[key], str):
            container[key] = draw(TEXTS)
        case "tweak" if isinstance(container[key], int | float):
            container[key] = draw(NUMBERS)
        case "delete":
            del container[key]
        case "wrap":
            container[key] = draw(
                st.sampled_from([[container[key]], {"a": container[key]}, str(container[key])])
            )
        case "add" if isinstance(container, dict):
            container[draw(KEYS)] = draw(VALUES)
        case "tweak" if isinstance(container[key], list):
            container[key] = container[key][:0]
        case "repeat" if isinstance(container, list):
            container.extend(copy.deepcopy(container[key]) for _ in range(draw(st.sampled_from([1, 5, 300]))))
        case _:
            container[key] = draw(VALUES)


def check_error(error: SmgError) -> None:
    status, _, body = error_answer(error)
    assert 400 <= status < 500
    assert len(body) < MAX_ERROR_BYTES
    assert json.loads(body, parse_constant=pytest.fail)["error"]["message"]


def answered(work: Callable[[bytes], None], raw: bytes) -> None:
    try:
        work(raw)
    except SmgError as error:
        check_error(error)


def check_numbers(
    request: chat_pb2.ChatRequest | completion_pb2.CompletionRequest, schema: str | None
) -> None:
    """What was taken can be told to an engine."""
    fields = set_fields(request.sampling)
    assert engine_sampling(fields, choice_index=1).ByteSize() < len(request.SerializeToString()) + 1000
    text_options(fields, logprobs=True)
    constraint(fields, schema)


@pytest.fixture(scope="module")
def builder(tokenizer_dir: Path) -> PromptBuilder:
    return PromptBuilder.load(tokenizer_dir)


def chat_work(builder: PromptBuilder) -> Callable[[bytes], None]:
    def work(raw: bytes) -> None:
        request = read_chat(raw)
        validate_chat(request)
        check_numbers(request, request.response_format.schema_json or None)
        prompt = builder.chat(
            template_messages(request.messages),
            tools=template_tools(request.tools),
            variables=template_variables(request.chat_template_kwargs_json),
            max_tokens=4096,
        )
        assert prompt.tokens

    return work


def completion_work(builder: PromptBuilder) -> Callable[[bytes], None]:
    card = card_pb2.ModelCard(bos_token_id=1)

    def work(raw: bytes) -> None:
        request = read_completion(raw)
        validate_completion(request)
        check_numbers(request, request.json_schema if request.HasField("json_schema") else None)
        for prompt in request.prompts:
            if prompt.WhichOneof("kind") == "text":
                made = never_empty(card, builder.text(prompt.text, max_tokens=4096))
            else:
                made = builder.ids(prompt.token_ids.ids)
            assert made.tokens

    return work


@QUICK
@given(raw=bodies(CHAT))
def test_a_chat_body_is_taken_or_refused(builder: PromptBuilder, raw: bytes) -> None:
    answered(chat_work(builder), raw)


@QUICK
@given(raw=bodies(COMPLETION))
def test_a_completion_body_is_taken_or_refused(builder: PromptBuilder, raw: bytes) -> None:
    answered(completion_work(builder), raw)


@pytest.mark.long
@pytest.mark.timeout(600)
@THOROUGH
@given(raw=bodies(CHAT))
def test_many_chat_bodies_are_taken_or_refused(builder: PromptBuilder, raw: bytes) -> None:
    answered(chat_work(builder), raw)


@pytest.mark.long
@pytest.mark.timeout(600)
@THOROUGH
@given(raw=bodies(COMPLETION))
def test_many_completion_bodies_are_taken_or_refused(builder: PromptBuilder, raw: bytes) -> None:
    answered(completion_work(builder), raw)


@pytest.mark.parametrize("body", [CHAT, COMPLETION], ids=["chat", "completion"])
def test_the_bodies_to_start_from_are_good(builder: PromptBuilder, body: dict[str, Any]) -> None:
    work = chat_work(builder) if body is CHAT else completion_work(builder)
    work(json.dumps(body).encode())
