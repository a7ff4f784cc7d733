"""Operations whose result may be far longer than what they are given are refused before they are done."""

from __future__ import annotations

import pytest

from smg.errors import InvalidRequest
from smg.prompt.template import ChatTemplate

BIG = "{% set big = 'a' * 1000000 %}"

TOO_LONG = {
    "text * number": "{{ 'x' * 10000000000 }}",
    "number * text": "{{ 10000000000 * 'x' }}",
    "list * number": "{{ [0] * 10000000000 }}",
    "number ** number": "{{ 9 ** 9999999 }}",
    "center": "{{ 'a'.center(1000000000) }}",
    "rjust": "{{ 'a'.rjust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "expandtabs": "{{ 'a\tb'.expandtabs(1000000000) }}",
    "to_bytes": "{{ (5).to_bytes(1000000000, 'big') }}",
    "to_bytes by name": "{{ (5).to_bytes(length=1000000000, byteorder='big') }}",
    "|center": "{{ 'a' | center(1000000000) }}",
    "|center by name": "{{ 'a' | center(width=1000000000) }}",
    "|batch": "{{ [1] | batch(1000000000, 0) | list }}",
    "|slice": "{{ [1] | slice(1000000000) | list }}",
    "|indent": "{{ 'x\ny' | indent(1000000000) }}",
    "|indent by text": BIG + "{{ 'x\ny\nz' | indent(big) }}",
    "%": "{{ '%1000000000d' % 3 }}",
    "% precision": "{{ '%.1000000000f' % 3 }}",
    "% chosen": "{{ '%*d' % (1000000000, 3) }}",
    "% of many": "{{ ('%999999d' * 1000) % 3 }}",
    "|format": "{{ '%1000000000d' | format(3) }}",
    "format": "{{ '{:>1000000000}'.format(3) }}",
    "format chosen": "{{ '{:>{}}'.format(3, 1000000000) }}",
    "format chosen by name": "{{ '{:>{w}}'.format(3, w=1000000000) }}",
    "replace": BIG + "{{ big.replace('a', 'b' * 1000) }}",
    "replace nothing": BIG + "{{ big.replace('', 'b' * 1000) }}",
    "|replace": BIG + "{{ big | replace('a', 'b' * 1000) }}",
    "mapped replace": BIG + "{{ [big] | map('replace', 'a', 'b' * 1000) | list }}",
    "join": BIG + "{{ ''.join([big] * 100) }}",
    "join by text": BIG + "{{ big.join(['x'] * 100) }}",
    "|join": BIG + "{{ ([big] * 100) | join }}",
    "|join by text": BIG + "{{ ([1] * 100) | join(big) }}",
    "|join of attributes": BIG + "{{ ([{'x': big}] * 100) | join(attribute='x') }}",
}

AS_LONG_AS_EVER = {
    "{{ 'ab' * 3 }}{{ 2 * 3 }}{{ 2.5 * 2 }}{{ 2 ** 10 }}{{ 2 ** -1 }}{{ 2 ** 0.5 == 1.4142135623730951 }}": "ababab65.010240.5True",
    "{{ 7 % 4 }}{{ '%5s|%-3d|%.2f|%%|%s' % ('a', 1, 2.5, 'b') }}": "3    a|1  |2.50|%|b",
    "{{ '{:>5}|{0}{x}'.format('a', x=10000000000) if false else '{0}{x}'.format('a', x=10000000000) }}": "a10000000000",
    "{{ 'total: 12345678901234567890 %s' % 'x' }}": "total: 12345678901234567890 x",
    "{{ 'abc'.replace('b', 'xyz', 1) }}{{ 'abab' | replace('a', 'o', 1) }}{{ 5 | replace('5', 6) }}": "axyzcobab6",
    "{{ ', '.join(['a', 'b']) }}{{ [1, none, 'x'] | join('-') }}{{ 'abc' | join('.') }}{{ [] | join }}": "a, b1-None-xa.b.c",
    "{{ 'a' | center(5) }}|{{ 'a\nb' | indent }}|{{ 'a\nb' | indent('> ', first=true) }}": "  a  |a\n    b|> a\n> b",
    "{{ 'a'.center(3, '*') }}{{ '7'.zfill(3) }}{{ 'a'.ljust(3) }}|{{ 'a\tb'.expandtabs(2) }}": "*a*007a  |a b",
    "{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2, 3] | slice(2, 0) | list }}": "[[1, 2], [3, 0]][[1, 2], [3, 0]]",
}  # fmt: skip


@pytest.mark.parametrize("source", TOO_LONG.values(), ids=list(TOO_LONG))
def test_a_result_of_any_length_is_refused(source: str) -> None:
    with pytest.raises(InvalidRequest, match="made something longer than"):
        ChatTemplate(source).render({})


@pytest.mark.parametrize(("source", "expected"), AS_LONG_AS_EVER.items(), ids=str)
def test_what_stays_short_is_as_ever(source: str, expected: str) -> None:
    assert ChatTemplate(source).render({}) == expected
