"""Feeds a text to an output parser in pieces, and checks on the way what the parser promises at every step."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smg.parsers.assemble import assemble
from smg.parsers.events import CallArguments, CallBroken, CallEnd, CallStart, Content, Reasoning
from smg.parsers.harmony import HARMONY, HarmonyParser
from smg.parsers.output import OutputParser
from smg.parsers.reasoning import reasoning_parser
from smg.parsers.tools import TOOL_PARSERS, ToolSchema, tool_parser
from smg.parsers.tools.forced import NamedCall, RequiredCalls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smg.parsers.assemble import Assembled
    from smg.parsers.events import Piece

GOLDEN = Path(__file__).parents[3] / "golden"
PLAIN = ' \nplain: {"a": [1]} '


def golden(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of the file and case, for every case below the folder."""
    for path in sorted((GOLDEN / folder).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield path.stem, json.loads(line)


def output_parser(
    *,
    tools: str | None = None,
    schemas: Iterable[dict[str, Any]] = (),
    reasoning: str | None = None,
    starts_inside: bool = False,
    **options: Any,
) -> OutputParser | HarmonyParser:
    """A fresh parser by the names that golden files have."""
    if HARMONY in (tools, reasoning):
        return HarmonyParser(takes_calls=True, **options)
    reader = reasoning_parser(reasoning, starts_inside=starts_inside) if reasoning else None
    if tools is None:
        return OutputParser(reader, None, **options)
    special = {"required": RequiredCalls, "named": lambda: NamedCall("get_weather")}
    known = [ToolSchema(**each) for each in schemas]
    caller = tool_parser(tools, known) if tools in TOOL_PARSERS else special[tools]()
    return OutputParser(reader, caller, **options)


def replay(
    parser: OutputParser | HarmonyParser, parts: Iterable[str], *, is_cut: bool = False
) -> list[Piece]:
    """All pieces of the parts."""
    pieces: list[Piece] = []
    for part in parts:
        pieces += parser.feed(part)
    return pieces + parser.finish(is_cut=is_cut)


def replay_in_lanes(
    parser: OutputParser | HarmonyParser, parts: Iterable[str], *, is_cut: bool = False
) -> list[Piece]:
    """As replay(), but texts that need not come through feed() do not."""
    pieces: list[Piece] = []
    openers = parser.openers
    for part in parts:
        if part and parser.lane is not None and openers.isdisjoint(part):
            pieces.append(Content(part) if parser.lane == "content" else Reasoning(part))
        else:
            pieces += parser.feed(part)
            check_lane(parser)
            assert parser.openers == openers
    return pieces + parser.finish(is_cut=is_cut)


def check_lane(parser: OutputParser | HarmonyParser) -> None:
    """While a lane is set, plain text passes through unchanged and nothing comes with it."""
    if parser.lane is None:
        return
    assert (parser.lane == "reasoning") == parser.is_reasoning
    kind = Content if parser.lane == "content" else Reasoning
    probe = copy.deepcopy(parser)
    plain = "".join(character for character in PLAIN if character not in parser.openers)
    assert probe.feed(plain) == [kind(plain)]
    assert probe.lane == parser.lane


def check_order(pieces: list[Piece]) -> None:
    """Numbers go up, a call ends once and before the next begins, and nothing is empty."""
    current, last = None, -1
    for piece in pieces:
        if isinstance(piece, CallStart):
            assert current is None
            assert piece.call > last
            current = last = piece.call
        elif isinstance(piece, CallArguments):
            assert piece.call == current
            assert piece.text
        elif isinstance(piece, (CallEnd, CallBroken)):
            assert piece.call == current
            current = None
        else:
            assert piece.text
    assert current is None


def assembled(pieces: list[Piece]) -> Assembled:
    """The whole answer, after a look at the pieces' order."""
    check_order(pieces)
    return assemble(pieces)
