"""Thinking: what a template knows is found out from it; the first rule that applies decides; nothing else is set."""

from __future__ import annotations

from typing import Any

import pytest

from smg.parsers.reasoning import REASONING_PARSERS
from smg.prompt.template import ChatTemplate
from smg.prompt.thinking import (
    TAGS,
    ThinkingSupport,
    continued_reasoning,
    decide,
    open_reasoning,
    thinking_support,
)
from tests.unit.smg.prompt.chat_templates import (
    CHATML,
    DEEPSEEK,
    DEEPSEEK_TOGGLE,
    EFFORTS,
    GRANITE,
    QWEN3,
    SMOL,
)

TOGGLE = ThinkingSupport(is_known=True, toggles=("enable_thinking",), starts_inside=True)
LEVELS = ThinkingSupport(is_known=True, efforts=frozenset(("none", "low", "high")))
BOTH = ThinkingSupport(is_known=True, toggles=("thinking",), efforts=frozenset(("low", "max")))
NEITHER = ThinkingSupport(is_known=True)
PRINTS_ALL = "{{ enable_thinking }}/{{ thinking }}|{{ messages[0].content }}<a>{% if enable_thinking is false %}<think></think>{% endif %}"


def support_of(source: str, *vocabulary: str) -> ThinkingSupport:
    return thinking_support(
        ChatTemplate(source), {"bos_token": "<s>"}, vocabulary=frozenset(vocabulary), max_seconds=5
    )


@pytest.mark.parametrize(
    ("source", "toggles", "efforts", "starts_inside"),
    [
        (QWEN3, ("enable_thinking",), set(), True),  # writes something only when it is off
        (SMOL, ("enable_thinking",), set(), True),  # sets its own default, shows it before the messages
        (DEEPSEEK_TOGGLE, ("thinking",), set(), False),  # ends in </think> unless it is on
        (DEEPSEEK, (), set(), True),  # opens the block itself, always
        (EFFORTS, (), {"none", "low", "high"}, True),  # takes "high" when nothing is said
        (PRINTS_ALL, ("enable_thinking",), set(), True),  # shows both toggles: the end tells which one works
        (CHATML, (), set(), False),
        ("{{ raise_exception('no') }}{{ enable_thinking }}<think>", ("enable_thinking",), set(), False),
    ],
    ids=["qwen", "smol", "toggle off", "always on", "levels", "prints", "none", "refuses"],
)
def test_what_a_template_knows(
    source: str, toggles: tuple[str, ...], efforts: set[str], starts_inside: bool
) -> None:
    found = support_of(source)
    assert (found.toggles, found.efforts, found.starts_inside) == (toggles, efforts, starts_inside)


def test_without_reasoning_tags_anywhere_an_answer_never_begins_in_reasoning() -> None:
    on_by_default = (
        "{% if enable_thinking is not defined or enable_thinking %}Think.{% endif %}{{ messages[0].content }}"
    )
    assert support_of(on_by_default) == ThinkingSupport(toggles=("enable_thinking",))
    assert support_of(on_by_default, "<think>").starts_inside
    assert support_of(GRANITE, "<think>") == ThinkingSupport(
        is_known=True, toggles=("thinking",), tags=(("<think>", "</think>"),)
    )


def test_a_toggle_that_changes_nothing_is_not_the_one_to_set() -> None:
    source = "{% set x = enable_thinking %}{% if thinking %}<think>{% endif %}"
    assert support_of(source).toggles == ("thinking",)


def test_a_name_that_the_template_sets_itself_is_no_toggle() -> None:
    source = "{% for m in messages %}{% set thinking = m.reasoning %}{{ thinking }}{% endfor %}<think>"
    assert support_of(source).toggles == ()


@pytest.mark.parametrize(
    ("support", "explicit", "effort", "kind", "expected"),
    [
        (TOGGLE, {}, "", "", None),
        # 1: an explicit toggle wins over everything.
        (TOGGLE, {"enable_thinking": True}, "none", "disabled", True),
        (TOGGLE, {"enable_thinking": False}, "high", "enabled", False),
        (BOTH, {"thinking": False}, "max", "enabled", False),
        # What the template does not read, or what is no boolean, is no toggle.
        (TOGGLE, {"thinking": False}, "", "", None),
        (TOGGLE, {"enable_thinking": "false"}, "", "", None),
        (TOGGLE, {"enable_thinking": None}, "", "disabled", False),
        # 2: own levels, before the type.
        (BOTH, {}, "max", "disabled", True),
        (BOTH, {}, "minimal", "enabled", False),
        (BOTH, {"reasoning_effort": "none"}, "max", "enabled", False),
        (BOTH, {"reasoning_effort": "low"}, "none", "disabled", True),
        (BOTH, {}, "banana", "disabled", False),
        (LEVELS, {}, "none", "", False),
        (LEVELS, {}, "high", "", True),
        (LEVELS, {"reasoning_effort": 5}, "high", "", None),
        # 3: the type, before the effort of templates without levels.
        (TOGGLE, {}, "none", "enabled", True),
        (TOGGLE, {}, "high", "disabled", False),
        (TOGGLE, {}, "", "adaptive", None),
        # 4: the effort.
        (TOGGLE, {}, "none", "", False),
        (TOGGLE, {}, "minimal", "adaptive", False),
        (TOGGLE, {}, "high", "", None),
        (TOGGLE, {"reasoning_effort": "none"}, "", "", None),
        # A template that cannot be told goes its own way.
        (LEVELS, {}, "", "enabled", None),
        (NEITHER, {"enable_thinking": False}, "none", "disabled", None),
    ],
    ids=str,
)
def test_the_first_rule_that_applies_decides(
    support: ThinkingSupport, explicit: dict[str, Any], effort: str, kind: str, expected: bool | None
) -> None:
    assert decide(support, explicit, effort, kind).thinks is expected


@pytest.mark.parametrize(
    ("support", "explicit", "effort", "kind", "expected"),
    [
        (TOGGLE, {}, "", "", {}),
        (TOGGLE, {}, "none", "", {"reasoning_effort": "none", "enable_thinking": False}),
        (TOGGLE, {"reasoning_effort": "low", "x": 1}, "high", "", {"reasoning_effort": "low", "x": 1}),
        (BOTH, {}, "", "enabled", {"thinking": True}),
        (TOGGLE, {"enable_thinking": True}, "", "disabled", {"enable_thinking": True}),
        # The template gets the decision that the reader of the answer gets.
        (TOGGLE, {"enable_thinking": "false"}, "", "enabled", {"enable_thinking": True}),
        (TOGGLE, {"enable_thinking": None}, "", "disabled", {"enable_thinking": False}),
        (TOGGLE, {"enable_thinking": None}, "", "", {}),
        (TOGGLE, {"enable_thinking": "false"}, "", "", {"enable_thinking": "false"}),
        (NEITHER, {}, "low", "enabled", {"reasoning_effort": "low"}),
        (
            ThinkingSupport(is_known=True, toggles=("enable_thinking", "thinking")),
            {"thinking": False},
            "",
            "",
            {"enable_thinking": False, "thinking": False},
        ),
    ],
    ids=str,
)
def test_what_the_template_is_told(
    support: ThinkingSupport, explicit: dict[str, Any], effort: str, kind: str, expected: dict[str, Any]
) -> None:
    given = dict(explicit)
    assert decide(support, explicit, effort, kind).variables == expected
    assert explicit == given


@pytest.mark.parametrize(
    ("rendered", "expected"),
    [
        ("<|assistant|><think>", True),
        ("<think>\n \n", True),
        ("<think>\n\n</think>\n\n", False),
        ("</think>x", None),
        ("", None),
        ("<think>" + "\n" * 100, None),
    ],
    ids=ascii,
)
def test_the_end_of_a_prompt_tells(rendered: str, expected: bool | None) -> None:
    assert open_reasoning(rendered) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>so", True),
        ("<think>so</think>", False),
        ("so", False),
        ("</think>a<think>", True),
        (" ", None),
    ],
)
def test_a_continued_message_tells_by_its_own_text(text: str, expected: bool | None) -> None:
    assert continued_reasoning(f"<think></think>{text}|", text) is expected


def test_the_tags_are_those_that_answers_are_read_by() -> None:
    read = {(form.opening.strip(), form.closing.strip()) for form in REASONING_PARSERS.values()}
    assert set(TAGS) == read


@pytest.mark.parametrize(("opening", "closing"), TAGS)
def test_every_family_s_tags_tell(opening: str, closing: str) -> None:
    opens = support_of("{{ messages[0].content }}<a>" + opening)
    assert (opens.is_known, opens.starts_inside, opens.tags) == (True, True, ((opening, closing),))
    assert not support_of("{{ messages[0].content }}<a>" + opening + closing).starts_inside
    assert open_reasoning(f"<a>{opening}\n", opens.tags) is True
    assert continued_reasoning("", f"{opening}a{closing}b{opening}", opens.tags) is True
    assert continued_reasoning("", f"{opening}a{closing}b", opens.tags) is False
