"""Conventions: what a template takes is found out by trials, and messages are given to it in that form."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from smg.prompt.conventions import Conventions, conventions_of
from smg.prompt.template import ChatTemplate
from tests.unit.smg.prompt.chat_templates import (
    CHATML,
    DEEPSEEK,
    DEVELOPER,
    FAMILIES,
    GEMMA_PARTS,
    LLAMA3,
    MISTRAL,
    PARTS_ONLY,
    PRINTS_NULL,
    QWEN3,
)

ALL_ROLES = {"system", "developer", "user", "assistant", "tool"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"ü": 1}}}


@cache
def found(source: str) -> Conventions:
    return conventions_of(ChatTemplate(source), {"bos_token": "<s>", "eos_token": "</s>"}, max_seconds=5)


@pytest.mark.parametrize("source", FAMILIES.values(), ids=list(FAMILIES))
def test_only_a_template_that_names_the_developer_gets_one(source: str) -> None:
    assert found(source).knows_developer == (source == DEVELOPER)


@pytest.mark.parametrize(
    ("source", "parts", "lists"),
    [
        (PARTS_ONLY, ALL_ROLES, ALL_ROLES),
        (GEMMA_PARTS, {"user", "assistant", "tool", "developer"}, set()),  # takes one part from the system
        (CHATML, set(), set()),  # fails on a list
        (QWEN3, set(), set()),  # leaves a list out
        (PRINTS_NULL, set(), set()),  # prints a list
        ("{{ messages | tojson }}", set(), set()),
        ("{{ raise_exception('never') }}", set(), set()),
    ],
    ids=["parts", "gemma", "chatml", "qwen", "prints", "json", "refuses"],
)
def test_parts_go_where_each_is_written_as_text(source: str, parts: set[str], lists: set[str]) -> None:
    conventions = found(source)
    assert (conventions.part_roles, conventions.list_roles) == (parts, lists)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (PRINTS_NULL, ""),
        (CHATML, ""),  # adds it to a string
        (MISTRAL, None),
        (DEEPSEEK, None),  # tells calls from words by it
        (LLAMA3, None),
        (QWEN3, None),
        ("None{{ messages | length }}", None),
        ("{{ raise_exception('never') }}", None),
    ],
    ids=["prints", "chatml", "mistral", "deepseek", "llama", "qwen", "says None", "refuses"],
)
def test_null_is_empty_text_only_where_it_would_be_written_or_fail(source: str, expected: str | None) -> None:
    assert found(source).null_content == expected


def test_arguments_are_text_only_where_objects_fail() -> None:
    assert {name for name, source in FAMILIES.items() if found(source).text_arguments} == {"DeepSeek"}


@pytest.mark.parametrize("source", FAMILIES.values(), ids=list(FAMILIES))
def test_no_template_writes_none_for_a_call_s_content(source: str) -> None:
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": "call00001"}]},
    ]
    messages = found(source).adapted(chat)
    scope = {"bos_token": "<s>", "eos_token": "</s>", "messages": messages, "tools": None}
    assert "None" not in ChatTemplate(source).render(scope)


def test_plain_messages_are_given_as_they_are() -> None:
    chat = [{"role": role, "content": "x"} for role in ("system", "user", "assistant", "tool")]
    assert all(given is sent for given, sent in zip(Conventions().adapted(chat), chat, strict=True))


def test_a_developer_becomes_the_system() -> None:
    chat = [{"role": "developer", "content": "x"}]
    assert Conventions().adapted(chat) == [{"role": "system", "content": "x"}]
    assert Conventions(knows_developer=True).adapted(chat) == chat
    assert chat[0]["role"] == "developer"


def test_text_parts_are_lines_of_one_text() -> None:
    parts = [{"type": "text", "text": "a "}, {"text": "b"}]
    chat = [{"role": "user", "content": parts}, {"role": "user", "content": []}]
    assert [message["content"] for message in Conventions().adapted(chat)] == ["a \nb", ""]
    assert Conventions(part_roles=frozenset(("user",))).adapted(chat) == chat


def test_parts_that_are_no_text_are_never_joined() -> None:
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "b"}]}]
    assert Conventions().adapted(chat) == chat


def test_text_becomes_a_part_where_nothing_else_is_taken() -> None:
    roles = frozenset(("user",))
    given = Conventions(part_roles=roles, list_roles=roles).adapted(
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    )
    assert [message["content"] for message in given] == [[{"type": "text", "text": "a"}], "b"]


def test_arguments_become_text_with_their_letters() -> None:
    chat: list[dict[str, Any]] = [{"role": "assistant", "content": None, "tool_calls": [CALL]}]
    given = Conventions(text_arguments=True, null_content="").adapted(chat)
    assert given[0]["tool_calls"][0]["function"]["arguments"] == '{"ü": 1}'
    assert given[0]["content"] == ""
    assert chat[0]["tool_calls"][0]["function"]["arguments"] == {"ü": 1}


def test_fields_that_are_none_are_left_out_but_not_the_content() -> None:
    chat = [{"role": "assistant", "content": None, "name": None, "tool_calls": None}]
    assert Conventions().adapted(chat) == [{"role": "assistant", "content": None}]


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_stands_under_each_name_that_templates_read(name: str) -> None:
    (given,) = Conventions().adapted([{"role": "assistant", "content": "x", name: "r"}])
    assert (given["reasoning_content"], given["thinking"]) == ("r", "r")


def test_a_template_that_never_ends_takes_what_most_do() -> None:
    endless = ChatTemplate(
        "{% set l = range(999) | list %}{% for a in l %}{% for b in l %}{% for c in l %}{% endfor %}{% endfor %}{% endfor %}"
    )
    assert conventions_of(endless, {}, max_seconds=0.01) == Conventions()


WANTS_SHORT = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
    "{{ raise_exception('nine') }}{% endif %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
    "{{ m.content or '' }}{% endfor %}"
)


def test_ids_of_calls_become_short_where_no_others_are_taken() -> None:
    assert found(WANTS_SHORT).short_ids
    assert not any(found(source).short_ids for name, source in FAMILIES.items() if source != MISTRAL)
    long = "call_0123456789abcdef"
    call: dict[str, Any] = {**CALL, "id": long}
    chat: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "abcDEF123"}]},
        {"role": "tool", "content": "r", "tool_call_id": long},
    ]
    given = Conventions(short_ids=True).adapted(chat)
    short = given[0]["tool_calls"][0]["id"]
    assert len(short) == 9
    assert short.isalnum()
    assert given[1]["tool_call_id"] == short
    assert given[0]["tool_calls"][1]["id"] == "abcDEF123"
    assert call["id"] == long
    assert Conventions().adapted(chat)[1]["tool_call_id"] == long
