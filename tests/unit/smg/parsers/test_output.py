"""OutputParser: what comes out when, and as how many pieces. What comes out in all is told by the golden files."""

from __future__ import annotations

import pytest

from smg.parsers.events import CallArguments, CallBroken, CallEnd, CallStart, Content, Reasoning
from smg.parsers.output import OutputParser
from tests.unit.smg.parsers.replay import output_parser

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def both(**options: bool) -> OutputParser:
    return output_parser(reasoning="think_tag", tools="hermes", **options)


def test_reasoning_that_ends_and_an_answer_that_begins_are_two_pieces() -> None:
    pieces = output_parser(reasoning="think_tag").feed("<think>a\n</think>\n\nb")
    assert pieces == [Reasoning("a\n"), Content("\n\nb")]


def test_without_parsers_everything_is_content() -> None:
    parser = OutputParser(None, None)
    assert (parser.lane, parser.openers, parser.is_reasoning) == ("content", frozenset(), False)
    assert parser.feed("<think>" + CALL) == [Content("<think>" + CALL)]
    assert parser.finish(is_cut=False) == []


def test_markup_is_content_where_its_parser_is_missing() -> None:
    assert output_parser(tools="hermes").feed("<think>a</think>") == [Content("<think>a</think>")]
    assert output_parser(reasoning="think_tag").feed("a" + CALL) == [Content("a" + CALL)]


def test_no_text_gives_no_piece() -> None:
    for parser in (OutputParser(None, None), both()):
        assert parser.feed("") == []
        assert parser.finish(is_cut=False) == []


def test_openers_do_not_change() -> None:
    assert both().openers == {"<"}
    assert output_parser(tools="json").openers == frozenset()
    assert output_parser(reasoning="think_tag", tools="required").openers == {"<"}


def test_lane_follows_the_text() -> None:
    parser = both()
    seen = [(parser.lane, parser.is_reasoning)]
    for text in (
        "<th",
        "ink>",
        "a",
        "</think",
        ">",
        "\n",
        "b",
        "<tool_call>",
        "{",
        '"name": "f"}',
        "</tool_call>",
        "c",
    ):
        parser.feed(text)
        seen.append((parser.lane, parser.is_reasoning))
    assert seen == [
        (None, False),
        (None, False),
        (None, True),  # white space alone is no reasoning
        ("reasoning", True),
        (None, True),
        (None, False),  # white space may stand before a call
        (None, False),
        ("content", False),
        (None, False),
        (None, False),
        (None, False),
        (None, False),  # white space behind a call
        ("content", False),
    ]


def test_an_answer_without_tools_is_in_its_lane_at_once_behind_reasoning() -> None:
    parser = output_parser(reasoning="think_tag", starts_inside=True)
    assert (parser.lane, parser.is_reasoning) == (None, True)
    assert parser.feed("a</think>") == [Reasoning("a")]
    assert parser.lane == "content"


def test_held_reasoning_has_no_lane_and_comes_block_by_block() -> None:
    parser = output_parser(reasoning="think_tag", starts_inside=True, hold_reasoning=True)
    assert parser.feed("a") == []
    assert parser.lane is None
    assert parser.is_reasoning
    assert parser.feed("b</think>") == [Reasoning("ab")]
    assert parser.lane == "content"
    assert parser.feed("c<think>d") == [Content("c")]
    assert parser.finish(is_cut=True) == [Reasoning("d")]


def test_text_waits_only_while_it_may_be_a_marker() -> None:
    parser = both()
    assert parser.feed("a <tool") == [Content("a ")]
    assert parser.feed("_x") == [Content("<tool_x")]
    assert parser.feed(" <") == [Content(" ")]
    assert parser.feed("<thin") == [Content("<")]
    assert parser.finish(is_cut=False) == [Content("<thin")]


def test_arguments_stream_as_they_come() -> None:
    parser = both()
    assert parser.feed('<tool_call>\n{"name": "f", "arguments": ') == []
    assert parser.feed("{") == [CallStart(0, "f"), CallArguments(0, "{")]
    assert parser.feed('"a": ') == [CallArguments(0, '"a":')]
    assert parser.feed(' "x y') == [CallArguments(0, '"x y')]
    assert parser.feed('"}') == [CallArguments(0, '"}')]
    assert parser.feed("}\n") == []
    assert parser.feed("</tool_call>") == [CallEnd(0)]


def test_arguments_before_the_name_wait_for_it() -> None:
    parser = both()
    assert parser.feed('<tool_call>{"arguments": {"a": 1}, "name": "f') == []
    assert parser.feed('"') == [CallStart(0, "f"), CallArguments(0, '{"a":1}')]


def test_two_calls_in_one_text() -> None:
    pieces = both().feed(CALL + CALL)
    assert [type(piece) for piece in pieces] == [CallStart, CallArguments, CallEnd] * 2
    assert [piece.call for piece in pieces if isinstance(piece, CallStart)] == [0, 1]


def test_a_broken_call_keeps_its_number_and_its_text() -> None:
    broken = '<tool_call>{"name": "f", "arguments": {]</tool_call>'
    pieces = both().feed("\n" + broken + CALL)
    assert pieces[:3] == [CallStart(0, "f"), CallArguments(0, "{"), CallBroken(0, "\n" + broken)]
    assert pieces[3:] == [CallStart(1, "f"), CallArguments(1, '{"a":1}'), CallEnd(1)]


def test_a_call_broken_before_its_start_uses_no_number() -> None:
    pieces = both().feed("<tool_call>x</tool_call>" + CALL)
    assert pieces[:2] == [Content("<tool_call>x</tool_call>"), CallStart(0, "f")]


def test_the_text_of_a_call_that_is_none_comes_as_soon_as_that_is_known() -> None:
    parser = both()
    assert parser.feed("<tool_call>\n") == []
    assert parser.feed("x y") == [Content("<tool_call>\nx y")]
    assert parser.feed(" z </") == [Content(" z ")]


def test_json_that_is_no_call_is_in_its_lane_behind_its_end() -> None:
    parser = output_parser(tools="json")
    assert parser.feed('{"a": 1') == []
    assert parser.feed("}") == [Content('{"a": 1}')]
    assert parser.lane == "content"


@pytest.mark.parametrize("is_cut", [False, True], ids=str)
def test_named_call_starts_with_its_brace(is_cut: bool) -> None:
    parser = output_parser(tools="named")
    assert parser.feed("\n{") == [CallStart(0, "get_weather"), CallArguments(0, "{")]
    assert parser.finish(is_cut=is_cut) == [CallBroken(0, "\n{")]


def test_every_choice_has_a_parser_of_its_own() -> None:
    one, other = both(), both()
    one.feed('<think>x</think><tool_call>{"name": "f", "arg')
    assert other.feed("Hi") == [Content("Hi")]
    assert other.finish(is_cut=False) == []
