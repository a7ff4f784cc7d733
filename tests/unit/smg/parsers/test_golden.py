"""Every golden output becomes the answer beside it, wherever it is cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from smg.parsers.assemble import Assembled, AssembledCall
from smg.parsers.reasoning import REASONING_PARSERS
from smg.parsers.tools import TOOL_PARSERS
from tests.unit.smg.parsers.replay import GOLDEN, assembled, golden, output_parser, replay, replay_in_lanes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smg.parsers.output import OutputParser

MOST_PLACES = 4
OPTIONS = ("starts_inside", "max_calls")


def _cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """File, names of the parsers, and case."""
    for folder in ("tools", "reasoning", "output"):
        for stem, case in golden(folder):
            names: dict[str, Any] = {
                "tools": {"tools": stem},
                "reasoning": {"reasoning": stem},
                "output": dict(zip(("reasoning", "tools"), stem.split("__"), strict=False)),
            }[folder]
            names |= {option: case[option] for option in OPTIONS if option in case}
            names |= {"schemas": case["tools"]} if "tools" in case else {}
            yield f"{folder}/{stem}", names, case


FILES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
for _file, _names, _case in _cases():
    FILES.setdefault(_file, []).append((_names, _case))


def _wanted(case: dict[str, Any]) -> Assembled:
    calls = tuple(
        AssembledCall(name, *(own_id or [None]), arguments) for name, arguments, *own_id in case["calls"]
    )
    return Assembled(case["content"], case["reasoning"], calls)


def _cuts(text: str, most_places: int) -> Iterator[list[str]]:
    """Into two parts at every place of a short text, and at places all over a long one; and into many parts."""
    yield [text]
    stride = 1 + len(text) // most_places
    for at in range(1 + len(text) % stride, len(text), stride):
        yield [text[:at], text[at:]]
    for step in (1, 4):
        yield [text[at : at + step] for at in range(0, len(text), step)]


def _run(parser: OutputParser, parts: Iterable[str], case: dict[str, Any]) -> Assembled:
    return assembled(replay(parser, parts, is_cut=case.get("is_cut", False)))


@pytest.mark.parametrize("file", FILES, ids=str)
def test_cuts_do_not_change_the_answer(file: str) -> None:
    _check_cuts(file, MOST_PLACES)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", FILES, ids=str)
def test_no_cut_changes_the_answer(file: str) -> None:
    _check_cuts(file, most_places=1_000_000)


def _check_cuts(file: str, most_places: int) -> None:
    for names, case in FILES[file]:
        wanted = _wanted(case)
        for parts in _cuts(case["text"], most_places):
            assert _run(output_parser(**names), parts, case) == wanted, (case["case"], parts)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_lanes_are_honest(file: str) -> None:
    for names, case in FILES[file]:
        text = case["text"]
        parts = [text[at : at + 2] for at in range(0, len(text), 2)]
        pieces = replay_in_lanes(output_parser(**names), parts, is_cut=case.get("is_cut", False))
        assert assembled(pieces) == _wanted(case), case["case"]


@pytest.mark.parametrize("file", [file for file in FILES if not file.startswith("tools")], ids=str)
def test_held_reasoning_is_the_same_reasoning(file: str) -> None:
    for names, case in FILES[file]:
        for parts in ([case["text"]], list(case["text"])):
            assert _run(output_parser(**names, hold_reasoning=True), parts, case) == _wanted(case), case[
                "case"
            ]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_arguments_are_json_objects(file: str) -> None:
    for _, case in FILES[file]:
        for _, arguments, *_ in case["calls"]:
            assert isinstance(json.loads(arguments), dict), case["case"]


def test_every_parser_has_golden_outputs() -> None:
    stems = {
        folder: {path.stem for path in (GOLDEN / folder).glob("*.jsonl")} for folder in ("tools", "reasoning")
    }
    assert stems["tools"] == {*TOOL_PARSERS, "required", "named"}
    shown = {REASONING_PARSERS[stem]._replace(reasons_first=False) for stem in stems["reasoning"]}
    assert shown == {each._replace(reasons_first=False) for each in REASONING_PARSERS.values()}


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("tools")], ids=str)
def test_no_format_has_less_than_a_dozen_outputs(file: str) -> None:
    assert len(FILES[file]) >= 12
