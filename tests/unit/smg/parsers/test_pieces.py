"""PieceList: neighbours of one kind become one piece, and none is empty."""

from __future__ import annotations

from smg.parsers.events import CallArguments, CallEnd, CallStart, Content, Reasoning
from smg.parsers.pieces import PieceList


def test_neighbours_of_one_kind_are_one_piece() -> None:
    pieces = PieceList()
    pieces.content("a")
    pieces.add(Content("b"))
    pieces.reasoning("c")
    pieces.add(Reasoning("d"))
    pieces.content("e")
    assert pieces.take() == [Content("ab"), Reasoning("cd"), Content("e")]


def test_arguments_of_one_call_are_one_piece() -> None:
    pieces = PieceList()
    added = [
        CallStart(0, "f"),
        CallArguments(0, "{"),
        CallArguments(0, "}"),
        CallEnd(0),
        CallStart(1, "g"),
        CallArguments(1, "{}"),
    ]
    for piece in added:
        pieces.add(piece)
    assert pieces.take() == [added[0], CallArguments(0, "{}"), *added[3:]]


def test_nothing_is_no_piece_and_taken_pieces_are_gone() -> None:
    pieces = PieceList()
    pieces.content("")
    pieces.reasoning("")
    assert pieces.take() == []
    pieces.content("a")
    assert pieces.take() == [Content("a")]
    assert pieces.take() == []
