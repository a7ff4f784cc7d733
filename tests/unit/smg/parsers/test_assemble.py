"""Assembler: pieces become a whole answer, with the text of broken calls where they stood."""

from __future__ import annotations

from smg.parsers.assemble import Assembled, AssembledCall, Assembler, assemble
from smg.parsers.events import CallArguments, CallBroken, CallEnd, CallStart, Content, Reasoning


def test_nothing_is_none() -> None:
    assert assemble([]) == Assembled(None, None, ())


def test_pieces_of_a_kind_are_joined() -> None:
    pieces = [Reasoning("a"), Content("b"), Reasoning("c"), Content("d")]
    assert assemble(pieces) == Assembled("bd", "ac", ())


def test_a_call_has_name_id_and_all_its_arguments() -> None:
    pieces = [
        CallStart(0, "f", "functions.f:0"),
        CallArguments(0, '{"a"'),
        CallArguments(0, ":1}"),
        CallEnd(0),
    ]
    assert assemble(pieces) == Assembled(None, None, (AssembledCall("f", "functions.f:0", '{"a":1}'),))


def test_a_broken_call_stands_as_text_where_it_began() -> None:
    pieces = [
        Content("a "),
        CallStart(0, "f"),
        CallArguments(0, "{"),
        CallBroken(0, "<call>{"),
        Content(" b"),
        CallStart(1, "g"),
        CallArguments(1, "{}"),
        CallEnd(1),
    ]
    assert assemble(pieces) == Assembled("a <call>{ b", None, (AssembledCall("g", None, "{}"),))


def test_an_unfinished_call_is_left_out() -> None:
    assembler = Assembler()
    assembler.add([CallStart(0, "f"), CallArguments(0, "{")])
    assert assembler.assembled() == Assembled(None, None, ())
    assembler.add([CallArguments(0, "}"), CallEnd(0)])
    assert assembler.assembled().calls == (AssembledCall("f", None, "{}"),)
