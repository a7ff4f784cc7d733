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

OPTIONS = ("starts_inside", "max_calls")


def _rows() -> Iterator[Any]:
    for folder in ("tools", "reasoning", "output"):
        for stem, case in golden(folder):
            names: dict[str, Any] = {
                "tools": {"tools": stem},
                "reasoning": {"reasoning": stem},
                "output": {"reasoning": "think_tag", "tools": stem.removeprefix("think_tag_")},
            }[folder]
            names |= {option: case[option] for option in OPTIONS if option in case}
            yield pytest.param(names, case, id=f"{stem}: {case['case']}")


ROWS = list(_rows())


def _wanted(case: dict[str, Any]) -> Assembled:
    calls = tuple(AssembledCall(name, None, arguments) for name, arguments in case["calls"])
    return Assembled(case["content"], case["reasoning"], calls)


def _cuts(text: str) -> Iterator[list[str]]:
    yield [text]
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]
    for step in (1, 2, 3, 7):
        yield [text[at : at + step] for at in range(0, len(text), step)]


def _run(parser: OutputParser, parts: Iterable[str], case: dict[str, Any]) -> Assembled:
    return assembled(replay(parser, parts, is_cut=case.get("is_cut", False)))


@pytest.mark.parametrize(("names", "case"), ROWS)
def test_cuts_do_not_change_the_answer(names: dict[str, Any], case: dict[str, Any]) -> None:
    wanted = _wanted(case)
    for parts in _cuts(case["text"]):
        assert _run(output_parser(**names), parts, case) == wanted


@pytest.mark.parametrize(("names", "case"), ROWS)
def test_lanes_are_honest(names: dict[str, Any], case: dict[str, Any]) -> None:
    wanted = _wanted(case)
    for step in (1, 3):
        text = case["text"]
        parts = [text[at : at + step] for at in range(0, len(text), step)]
        pieces = replay_in_lanes(output_parser(**names), parts, is_cut=case.get("is_cut", False))
        assert assembled(pieces) == wanted


@pytest.mark.parametrize(("names", "case"), ROWS)
def test_held_reasoning_is_the_same_reasoning(names: dict[str, Any], case: dict[str, Any]) -> None:
    for parts in ([case["text"]], list(case["text"])):
        assert _run(output_parser(**names, hold_reasoning=True), parts, case) == _wanted(case)


@pytest.mark.parametrize(("names", "case"), ROWS)
def test_arguments_are_compact_json_objects(names: dict[str, Any], case: dict[str, Any]) -> None:
    for call in _run(output_parser(**names), [case["text"]], case).calls:
        assert isinstance(json.loads(call.arguments), dict)


def test_every_parser_has_golden_outputs() -> None:
    assert {path.stem for path in (GOLDEN / "tools").glob("*.jsonl")} == {*TOOL_PARSERS, "required", "named"}
    assert {path.stem for path in (GOLDEN / "reasoning").glob("*.jsonl")} == set(REASONING_PARSERS)
