"""JsonScanner: accepts what json accepts, ends where the value ends, and leaves out nothing but white space."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.parsers.tools.json_scan import MAX_DEPTH, JsonScanner, string_value

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
# The characters of JSON, and some that are none.
SOUP = st.text('{}[]":,\\/bfnrtu0123456789-+.eE alsue\n\tNé\x00\x1f\u00a0', max_size=12)
PARTS = st.lists(
    st.sampled_from(["{", "}", "[", "]", '"a"', ":", ",", "1", "-0.5e3", "null", " "]), max_size=9
).map("".join)


def scan(text: str, step: int) -> tuple[JsonScanner, str, int]:
    """The scanner, what it gave out, and how many characters it took."""
    scanner, out, taken = JsonScanner(), list[str](), 0
    for start in range(0, len(text), step):
        part = text[start : start + step]
        end = scanner.feed(part, 0, out)
        taken += end
        if end < len(part):
            break
    return scanner, "".join(out), taken


def refuse(word: str) -> Any:
    raise ValueError(word)


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@given(VALUES, st.sampled_from([None, 0, 3]), st.booleans(), st.integers(1, 8))
def test_a_value_is_taken_to_its_end_and_made_compact(
    value: Any, indent: int | None, escaped: bool, step: int
) -> None:
    written = json.dumps(value, indent=indent, ensure_ascii=escaped)
    scanner, out, taken = scan("\n " + written + " ]}x", step)
    assert scanner.is_done
    assert taken == len(written) + 2
    assert out == json.dumps(value, separators=(",", ":"), ensure_ascii=escaped)


@given(SOUP | PARTS, st.integers(1, 5))
def test_it_accepts_what_json_accepts(text: str, step: int) -> None:
    scanner, _, taken = scan(text + " ", step)  # a number ends with what stands behind it
    assert (scanner.is_done and not text[taken:].strip(" \t\n\r")) == is_json(text)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("}", 0), ("nul,", 3), ("[1,]", 3), ('{"a" 1}', 5), ("{a:1}", 1), ('{"a":1,}', 7), ("[1 2]", 3), ("01", 1),
        ("-x", 1), ("1.x", 2), ("1ex", 2), ('"\n"', 1), ('"\\x"', 2), ('"\\u00g0"', 5), ("[1}", 2), ("\u00a01", 0),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("step", [1, 100], ids=str)
def test_it_stops_at_the_character_that_does_not_fit(text: str, at: int, step: int) -> None:
    scanner, _, taken = scan(text, step)
    assert taken == at
    # 01 is a zero, and what stands behind it.
    assert scanner.is_broken == (text != "01")
    assert scanner.is_done == (text == "01")


def test_depth_is_bounded() -> None:
    scanner, _, _ = scan("[" * MAX_DEPTH + "]" * MAX_DEPTH, 1)
    assert scanner.is_done
    scanner, _, taken = scan("[" * (MAX_DEPTH + 1), 1)
    assert scanner.is_broken
    assert taken == MAX_DEPTH
    shallow = JsonScanner(max_depth=1)
    assert shallow.feed('{"a":[', 0, []) == 5
    assert shallow.is_broken


def test_nothing_is_taken_behind_the_end() -> None:
    scanner, out = JsonScanner(), list[str]()
    assert scanner.feed("{} {}", 0, out) == 2
    assert scanner.feed("{}", 0, out) == 0
    assert out == ["{", "}"]


def test_strings_have_values_when_they_are_unicode() -> None:
    assert string_value('"a\\n\\ud83d\\uddfc"') == "a\n🗼"
    assert string_value('"\\ud83d"') is None
