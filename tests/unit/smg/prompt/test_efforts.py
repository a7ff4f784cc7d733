"""compared_efforts finds the strings that a template compares the effort with, however it does that."""

import pytest

from smg.prompt.template import ChatTemplate


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% if reasoning_effort == 'high' %}x{% endif %}", {"high"}),
        ("{% if 'high' != reasoning_effort %}x{% endif %}", {"high"}),
        ("{% if reasoning_effort is defined and reasoning_effort in ['a', 'b'] %}x{% endif %}", {"a", "b"}),
        ("{% if reasoning_effort not in ('a',) %}x{% endif %}", {"a"}),
        ("{% set e = reasoning_effort | default('m') | lower %}{% if e == 'a' %}x{% endif %}", {"a"}),
        ("{% set e = reasoning_effort if reasoning_effort else 'm' %}{{ 'x' if e is eq('a') }}", {"a"}),
        ("{{ {'a': 1, 'b': 2}[reasoning_effort] }}", {"a", "b"}),
        ("{{ reasoning_effort }}{% if other == 'a' %}x{% endif %}{{ 'b' is in ['c'] }}", set()),
        ("{% if reasoning_effort == 5 %}x{% endif %}", set()),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(sorted(value)),
)
def test_levels_are_what_the_effort_is_compared_with(source, expected):
    assert ChatTemplate(source).efforts == expected
