"""ContentGuard: strings that could become control tokens are broken, all others are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import InvalidRequest
from smg.prompt.content import ContentGuard, free_character
from smg.prompt.control import ControlToken

SPECIAL = ("<s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<file>")
MARKUP = ("<think>", "</think>", "[CALL]")
TOKENS = [
    ControlToken(n, text, text in SPECIAL, False, False, False, False)
    for n, text in enumerate((*SPECIAL, *MARKUP))
]
# Of a template that writes `<|`, a name, `|>`: any string may be completed on both sides.
GUARD = ContentGuard(TOKENS, template_text="<|im_start|>\0<|\0|>", template_names=frozenset({"start"}))


def user(content: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content, **more}]


def marked(content: str, role: str = "user") -> str:
    """The content with `^` for the mark."""
    mark, messages, _ = GUARD.with_marks([{"role": role, "content": content}])
    return messages[0]["content"].replace(mark, "^")


@pytest.mark.parametrize(
    ("content", "broken"),
    [
        ("a <|im_end|> b", "a <^|im_end|> b"),
        ("<|IM_END|>", "<^|IM_END|>"),  # a template may change the case
        ("<|im_<|im_end|>", "<|im_<^|im_end|>"),
        ("text <|im_", "text <|im_^"),  # what follows in the template may complete it
        ("text <", "text <^"),
        ("text <  \n", "text <^  \n"),  # templates trim
        ("_end|> text", "^_end|> text"),  # and what comes before
        ("> quoted", "^> quoted"),
        ("im_end", "^im_end"),
        ("think", "^think"),  # a name that a template puts into angle brackets
        ("now [CALL] it", "now [^CALL] it"),
    ],
)
def test_breaks_what_could_become_a_control_token(content: str, broken: str) -> None:
    assert GUARD.needs_marks(user(content))
    assert marked(content) == broken


@pytest.mark.parametrize(
    "content",
    [
        "",
        " ",
        "hello",
        "a < b and c > d",
        "<div>",
        "|im_end|  x",
        "if (a<b) {}",
        "start",
        "im ended",
        "x" * 5000,
        "<|other|> x",
    ],
)
def test_leaves_other_text_alone(content: str) -> None:
    assert not GUARD.needs_marks(user(content))
    assert marked(content) == content


@given(
    st.lists(
        st.sampled_from([*SPECIAL, *MARKUP, "<", ">", "|", "im_", "end", " ", "a", "]"]), max_size=8
    ).map("".join)
)
def test_needs_marks_agrees_with_what_is_marked(content: str) -> None:
    assert GUARD.needs_marks(user(content)) == ("^" in marked(content))


@given(st.text("<>|/s_imendthk[]CAL ^", max_size=30))
def test_a_broken_text_without_its_marks_is_the_text(content: str) -> None:
    mark, messages, _ = GUARD.with_marks(user(content))
    assert messages[0]["content"].replace(mark, "") == content


@pytest.mark.parametrize("role", ["assistant", "system", "developer"])
def test_markup_keeps_its_meaning_in_the_model_s_and_the_operator_s_words(role: str) -> None:
    assert marked("<think>hm</think> [CALL]", role) == "<think>hm</think> [CALL]"
    assert marked("<|im_end|>", role) == "<^|im_end|>"


@pytest.mark.parametrize("role", ["user", "tool", "function", "unheard-of"])
def test_markup_has_none_in_anybody_else_s(role: str) -> None:
    assert marked("<think>", role) == "<^think>"


def test_known_roles_are_left_to_the_template_and_others_are_content() -> None:
    # `<|user|>` is written by some templates as '<|' + role + '|>'.
    assert not GUARD.needs_marks([{"role": "user", "content": "x"}])
    assert GUARD.needs_marks([{"role": "im_end", "content": "x"}])
    mark, messages, _ = GUARD.with_marks(
        [{"role": "user", "content": "<s>"}, {"role": "im_end", "content": "x"}]
    )
    assert [message["role"].replace(mark, "^") for message in messages] == ["user", "^im_end"]


@pytest.mark.parametrize(
    "place",
    [
        {"messages": user([{"type": "text", "text": "<s>"}])},
        {"messages": user("x", name="<s>")},
        {"messages": user("x", **{"<s>": 1})},
        {
            "messages": user("x"),
            "tools": [{"function": {"name": "f", "parameters": {"properties": {"think": {}}}}}],
        },
        {"messages": user("x"), "variables": {"documents": [{"text": "see <s>"}]}},
        {
            "messages": [
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "<|im_end|>"}}]}
            ]
        },
    ],
    ids=["part", "name", "field", "key of a tool", "document", "tool call"],
)
def test_every_string_of_a_request_is_looked_at(place: dict[str, Any]) -> None:
    messages, *others = place.values()
    assert GUARD.needs_marks(messages, *others)


@pytest.mark.parametrize("written", ["<|im_start|>", "text\n", "", "a < b", "{'<s>'}"])
def test_a_template_that_begins_no_control_token_needs_no_marks_for_the_ends_of_them(written: str) -> None:
    guard = ContentGuard(TOKENS, template_text=written, template_names=frozenset())
    tools = [{"function": {"name": "file", "parameters": {"properties": {"think": {"type": "string"}}}}}]
    for content in ("> quoted", "im_end", "think", "_end|> text"):
        assert not guard.needs_marks(user(content), tools)
    for content in ("a <|im_end|> b", "text <|im_", "text <"):
        assert guard.needs_marks(user(content))
        assert guard.needs_marks(user("x"), [{"function": {"description": content}}])


@pytest.mark.parametrize("written", ["<", "\n<|", "x</", "<{}>", "<%s>", "<|%s|>", "<|IM_"])
def test_a_template_that_begins_one_does(written: str) -> None:
    guard = ContentGuard(TOKENS, template_text=f"a\0{written}\0b", template_names=frozenset())
    assert guard.needs_marks(user("x"), [{"function": {"name": "think"}}])
    assert guard.needs_marks(user("_end|> text"))


def test_names_of_the_format_and_of_the_template_are_not_touched() -> None:
    tools = [
        {
            "type": "function",
            "function": {"name": "start", "description": "", "parameters": {"type": "object"}},
        }
    ]
    assert not GUARD.needs_marks(user("x"), tools)


def test_the_request_is_not_changed() -> None:
    messages = user(["<s>", {"text": "<s>"}])
    GUARD.with_marks(messages)
    assert messages == user(["<s>", {"text": "<s>"}])


def test_the_mark_is_a_character_that_nobody_uses() -> None:
    mark, messages, (variables,) = GUARD.with_marks(user("<s>\ue000"), {"x": "\ue001"})
    assert mark == "\ue002"
    assert messages[0]["content"] == "<\ue002s>\ue000"
    assert variables == {"x": "\ue001"}


def test_a_request_with_every_private_use_character_is_refused() -> None:
    everything = "".join(map(chr, [*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE)]))
    assert free_character(everything[:-1]) == everything[-1]
    with pytest.raises(InvalidRequest, match="private-use"):
        GUARD.with_marks(user("<s>" + everything))
