"""Head: the text before a value, up to its mark or to the first character that fits nothing."""

from __future__ import annotations

import pytest

from smg.parsers.tools.heads import Head, HeadShape

SHAPE = HeadShape("<end>", ">>", inner=("<sep>",), stops="\n{")


def read(shape: HeadShape, text: str, step: int) -> tuple[str, str, bool, str]:
    """Text, mark, broken, what is left."""
    head, at = Head(shape), 0
    while at < len(text) and not (head.mark or head.is_broken):
        at += head.feed(text[at : at + step], 0)
    return head.text, head.mark, head.is_broken, text[at:]


@pytest.mark.parametrize("step", [1, 2, 3, 100], ids=str)
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name<end>x", ("name<end>", "<end>", False, "x")),
        ("a<sep>b>>", ("a<sep>b>>", ">>", False, "")),
        ("a>b", ("a", "", True, "b")),
        ("a<eXd>", ("a", "", True, "Xd>")),
        ("a\nb<end>", ("a", "", True, "\nb<end>")),
        ("a<sep{", ("a", "", True, "{")),
        ("abc", ("abc", "", False, "")),
    ],
    ids=str,
)
def test_a_head_ends_at_its_mark(text: str, found: tuple[str, str, bool, str], step: int) -> None:
    assert read(SHAPE, text, step) == found


@pytest.mark.parametrize("step", [1, 2, 100], ids=str)
def test_where_only_space_may_stand_anything_else_is_broken(step: int) -> None:
    shape = HeadShape("<a>", only_space=True)
    assert read(shape, " \n<a>x", step) == (" \n<a>", "<a>", False, "x")
    assert read(shape, " \nx<a>", step)[2:] == (True, "x<a>")
