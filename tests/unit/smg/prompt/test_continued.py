"""render_open ends a prompt in the last message, exactly; what theirs does too is in test_template_parity."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import InvalidRequest
from smg.prompt.continued import render_open
from smg.prompt.template import ChatTemplate

CHATML = ChatTemplate(
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)
TRIMMING = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}")
PARTS = ChatTemplate(
    "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}[{{ p.text }}]{% endfor %}</>{% endfor %}"
)
DUMPING = ChatTemplate(
    "{{ messages | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
)


def continued(template: ChatTemplate, content: Any, **fields: Any) -> str:
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": content, **fields}]
    return render_open(template, {"messages": chat, "add_generation_prompt": True}, "").rendered


@given(st.text())
def test_the_prompt_ends_in_the_text_to_the_last_blank(text: str) -> None:
    assert continued(CHATML, text) == f"<user>q</><assistant>{text}"


@given(st.text(alphabet="ab \n\t\u00a0"))
def test_where_the_template_trims_the_prompt_is_trimmed_too(text: str) -> None:
    assert continued(TRIMMING, text) == f"<user>q</><assistant>{text.strip()}"


def test_of_parts_the_last_text_is_continued() -> None:
    parts = [{"text": "a"}, {"text": "b "}, {"type": "image"}]
    assert continued(PARTS, parts).endswith("<assistant>[a][b ")
    assert parts[1] == {"text": "b "}


def test_a_template_that_shows_the_message_elsewhere_shows_it_as_it_is() -> None:
    chat = '[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a "}]'
    assert continued(DUMPING, "a ") == f"{chat}<user>q</><assistant>a "


def test_private_use_characters_of_the_client_survive() -> None:
    text = "\ue000\ue000 \ue001\ue000"
    chat = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
    scope = {"messages": chat, "tools": [{"x": "\ue002"}]}
    assert render_open(CHATML, scope, "").rendered == f"<user>{text}</><assistant>{text}"


@pytest.mark.parametrize(
    ("template", "content", "fields", "says"),
    [
        (CHATML, None, {}, "no text to continue"),
        (CHATML, [], {}, "no text to continue"),
        (CHATML, [{"type": "image"}], {}, "no text to continue"),
        (CHATML, "a", {"tool_calls": [{"id": "c"}]}, "has tool calls, which cannot be continued"),
        (ChatTemplate("{{ messages[0].content }}"), "a", {}, "changes or leaves out the last message"),
        (
            ChatTemplate("{{ messages[1].content | upper }}"),
            "a",
            {},
            "changes or leaves out the last message",
        ),
    ],
    ids=["null", "no parts", "no text", "calls", "left out", "changed"],
)
def test_what_cannot_be_continued_says_why(
    template: ChatTemplate, content: Any, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        continued(template, content, **fields)
    assert caught.value.param == "continue_final_message"
