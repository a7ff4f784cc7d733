"""The sandbox's bounds: whatever a template loops over or makes, it ends soon and stays small, and says which bound it met."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from smg.errors import InvalidRequest
from smg.prompt import sandbox
from smg.prompt.template import ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES = [{"role": "user", "content": "x" * 1000}] * 50


def render(source: str, **options: Any) -> str:
    return ChatTemplate(source, **options).render({"messages": MESSAGES})


class Clock:
    """Tells another second each time it is asked."""

    def __init__(self) -> None:
        self._seconds: Iterator[int] = itertools.count()

    def monotonic(self) -> float:
        return next(self._seconds)


# In none of them anything is written while they loop.
SILENT = {
    "a loop": "{% for m in messages %}{% endfor %}",
    "nested loops": "{% for a in messages %}{% for b in messages %}{% for c in b.content %}{% endfor %}{% endfor %}{% endfor %}",
    "a list made once": "{% set l = range(300) | list %}{% for a in l %}{% for b in l %}{% for c in l %}{% endfor %}{% endfor %}{% endfor %}",
    "a filtered loop": "{% for m in messages if m.role == 'nobody' %}{% endfor %}",
    "filters in a loop": "{% for m in messages %}{% set x = messages | selectattr('role', 'equalto', 'z') | list %}{% endfor %}",
    "a loop with its length": "{% for m in messages %}{% if loop.revindex == 0 %}x{% endif %}{% endfor %}",
    "calls that call twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "a loop in a macro": "{% macro f() %}{% for m in messages %}{% endfor %}{% endmacro %}{{ f() }}",
    "a loop in a block": "{% set x %}{% for m in messages %}{% endfor %}{% endset %}",
    "a loop in a generation": "{% generation %}{% for m in messages %}{% endfor %}{% endgeneration %}",
    "a recursive loop": "{% for m in [messages] recursive %}{% if m is sequence and m is not string %}{{ loop(m) }}{% endif %}{{ loop([]) }}{% endfor %}",
}


@pytest.mark.parametrize("source", SILENT.values(), ids=list(SILENT))
def test_a_loop_that_writes_nothing_ends_when_the_time_is_up(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "time", Clock())
    with pytest.raises(InvalidRequest, match="took more than 5 seconds"):
        render(source)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{% for i in range(60000) %}{% for j in range(60000) %}{% endfor %}{% endfor %}", "looped over more than"),
        ("{{ range(10 ** 9) | list }}", "looped over more than"),
        ("{{ lipsum(n=1000000) }}", "'lipsum' is undefined"),
        ("{% set y %}{% for i in range(9999) %}{{ messages[0].content }}{% endfor %}{% endset %}", "wrote more than"),
        ("{% macro f() %}{% for i in range(9999) %}{{ messages[0].content }}{% endfor %}{% endmacro %}{{ f() }}", "wrote more"),
        ("{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "longer than 16777216"),
        ("{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = '' + ns.x + ns.x %}{% endfor %}", "longer than"),
        ("{% set ns = namespace(x=[3]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "longer than"),
        ("{% set ns = namespace(x=3) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}", r"longer than .* `\*`"),
        ("{% macro f(n) %}{% if n %}{% set x = f(n - 1) %}{{ x }}{{ x }}{% else %}aaaa{% endif %}{% endmacro %}{{ f(40) }}", "more|longer"),
    ],
    ids=str,
)  # fmt: skip
def test_what_would_grow_without_end_is_stopped(source: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        render(source, max_output_chars=1_000_000)


def test_the_range_budget_is_one_for_a_rendering_and_new_for_the_next() -> None:
    template = ChatTemplate("{% for i in range(60000) %}{% endfor %}{{ n | length }}")
    assert template.render({"n": range(5)}) == "5"
    assert template.render({"n": range(5)}) == "5"


def test_a_request_cannot_replace_the_budget() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m }}{% endfor %}{{ range(3) | list }}")
    variables: dict[str, Any] = {"messages": ["a"], sandbox.BUDGET_VARIABLE: "mine", "range": "mine"}
    assert template.render(variables) == "a[0, 1, 2]"
