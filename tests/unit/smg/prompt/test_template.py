"""ChatTemplate says what went wrong, stays within bounds, and knows its own words. What it writes: test_template_parity."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from smg.errors import InvalidRequest
from smg.prompt.template import MARK_VARIABLE, ChatTemplate

CHAT = [{"role": "user", "content": "Hi"}]


def ours(source: str) -> str:
    return ChatTemplate(source).render({"messages": CHAT, "tools": None})


def test_dates_come_from_the_clock_that_was_given() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2031, 2, 3, tzinfo=UTC))
    assert template.render({}) == "03 Feb 2031"


def test_a_refusal_is_the_template_s_own_message() -> None:
    with pytest.raises(InvalidRequest) as caught:
        ours("{{ raise_exception('Roles must alternate {{ user }}') }}")
    assert caught.value.message == "Roles must alternate {{ user }}"


def test_a_refusal_without_words_gets_some() -> None:
    with pytest.raises(InvalidRequest, match="refuses this conversation"):
        ours("{{ raise_exception('') }}")


@pytest.mark.parametrize(
    "source",
    ["{{ [1].index('secret') }}", "{{ {'secret': 1}['secret'] + 'secret' }}", "{{ '{secret}'.format() }}"],
    ids=str,
)
def test_what_python_says_of_a_failure_is_short_and_without_the_template(source: str) -> None:
    with pytest.raises(InvalidRequest, match="failed on this request") as caught:
        ours(source)
    assert "secret" not in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ messages[99].content.text }}", "needs something that the request lacks"),
        ("{{ 1 // 0 }}", "failed on this request with ZeroDivisionError"),
        ("{{ 'a' + 1 }}", "failed on this request: can only concatenate"),
        ("{{ messages[0]['x' * 9999].y }}", r"lacks: .{200}$"),
        ("{{ messages | tojson(indent='x', separators=1) }}", "failed on this request"),
        ("{{ messages.append(1) }}", "sandbox forbids"),
        ("{{ ''.__class__.__mro__ }}", "sandbox forbids"),
        ("{% set ns = namespace() %}{% set ns._x = 1 %}", "sandbox forbids"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursed too deeply"),
    ],
)
def test_a_template_that_fails_is_the_request_s_error(source: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        ours(source)


def test_output_is_bounded() -> None:
    with pytest.raises(InvalidRequest, match="wrote more than 1000000 characters"):
        ChatTemplate(
            "{% for i in range(5000) %}{{ 'x' * 1000 }}{% endfor %}", max_output_chars=1_000_000
        ).render({})


def test_a_rendering_may_have_less_time_than_others() -> None:
    endless = "{% set l = range(999) | list %}{% for a in l %}{% for b in l %}{% for c in l %}{% endfor %}{% endfor %}{% endfor %}"
    with pytest.raises(InvalidRequest, match=r"took more than 0\.01 seconds"):
        ChatTemplate(endless).render({}, max_seconds=0.01)


def test_a_template_that_is_not_jinja_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        ChatTemplate("ok\n{% for %}")


def test_the_mark_stays_a_character_in_ascii_json() -> None:
    template = ChatTemplate("{{ messages | tojson(ensure_ascii=True) }}")
    rendered = template.render({"messages": "<\ue000\ue001\u00e9\U0001f600", MARK_VARIABLE: "\ue000"})
    assert rendered == '"<\ue000\\ue001\\u00e9\\ud83d\\ude00"'


def test_text_and_names_are_what_the_template_can_write_and_compare_with() -> None:
    template = ChatTemplate("<s>{% if m.role == 'user' %}{{ '<think>' }}{% endif %}")
    assert "<s>" in template.text
    assert "<think>" in template.text
    assert {"role", "user"} <= template.names


def test_constants_variables_and_efforts_are_those_of_the_source() -> None:
    template = ChatTemplate(
        "{% set own = 1 %}{% for m in messages %}{{ own ~ m.role ~ 'a' }}{% endfor %}{% if reasoning_effort in ['x'] %}{{ tools }}{% endif %}"
    )
    assert template.constants == {"a", "x"}
    assert template.variables == {"messages", "reasoning_effort", "tools"}
    assert template.efforts == {"x"}


def test_an_indent_without_end_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="indented JSON by more than 256"):
        ours("{{ messages | tojson(indent=1000000000) }}")


@pytest.mark.parametrize(
    ("source", "is_steady"),
    [
        ("{{ messages[0].content }}", True),
        ("{{ 'strftime_now' }}", True),
        ("{{ strftime_now('%d') }}", False),
        ("{% set now = strftime_now %}{{ now('%d') }}", False),
        ("{{ [1, 2] | random }}", False),
        ("{{ [[1, 2]] | map('random') | list }}", False),
    ],
)
def test_a_template_that_reads_the_clock_or_draws_is_not_steady(source: str, is_steady: bool) -> None:
    assert ChatTemplate(source).is_steady is is_steady
