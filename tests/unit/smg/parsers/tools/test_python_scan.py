"""PythonScanner: what Python writes for a value becomes the JSON of that value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.parsers.tools.json_scan import MAX_DEPTH
from smg.parsers.tools.python_scan import PythonScanner
from tests.examples import examples

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def scan(text: str, step: int = 1000) -> tuple[str, str, bool]:
    """JSON, what is left of the text, and whether it is a value."""
    scanner, out, at = PythonScanner(), list[str](), 0
    while at < len(text) and not (scanner.is_done or scanner.is_broken):
        part = text[at : at + step]
        at += scanner.feed(part, 0, out)
    return "".join(out), text[at:], scanner.is_done


@examples(25)
@given(VALUES, st.integers(1, 5))
def test_what_repr_writes_comes_back_as_json(value: Any, step: int) -> None:
    written, rest, is_done = scan(repr(value) + ",", step)
    assert (rest, is_done) == (",", True)
    assert json.loads(written) == value


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("( 1 ,'a' , )", '[1,"a"]'),
        ("{'a': (), 2: [[],], None: {},}", '{"a":[],"2":[[]],"null":{}}'),
        (r"'\x41\u00e9\U0001F5FC'", r'"A\u00e9\ud83d\uddfc"'),
        (r"'\a\v\0\q'", r'"\u0007\u000b\u0000\\q"'),
        ("'a\\\nb'", '"ab"'),
        ("'a\nb\tc'", r'"a\nb\tc"'),
        ('"it\'s"', '"it\'s"'),
        ("-0.50e+3", "-0.50e+3"),
        ("1e999", "1e999"),
        ("1_000", "1000"),
        ("007", "7"),
        (".5", "0.5"),
        ("true", "true"),
    ],
    ids=str,
)
def test_spellings(text: str, written: str) -> None:
    for step in (1, 2, 100):
        assert scan(text + "|", step) == (written, "|", True)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("f(1)", "(1)"),
        ("{1, 2}", ", 2}"),
        ("b'x'", "'x'"),
        ("1 + 2]", None),
        ("[1 2]", "2]"),
        ("[,]", ",]"),
        ("[1,,2]", ",2]"),
        ("{'a' 1}", "1}"),
        ("{[1]: 2}", "[1]: 2}"),
        ("[1}", "}"),
        ("-", None),
        ("nan,", ","),
        (r"'\xg1'", "g1'"),
        (r"'\U00110000'", "0'"),
        ("9" * 5000 + "_1,", ","),
    ],
    ids=lambda text: str(text)[:20],
)
def test_what_is_no_literal_is_broken_at_its_first_wrong_character(text: str, rest: str | None) -> None:
    for step in (1, 3, 10_000):
        _, left, is_done = scan(text, step)
        if rest is not None:
            assert (left, is_done) == (rest, False)
        else:
            assert not is_done or left


def test_depth_is_bounded() -> None:
    assert scan("[" * MAX_DEPTH + "]" * MAX_DEPTH)[2]
    assert not scan("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))[2]
