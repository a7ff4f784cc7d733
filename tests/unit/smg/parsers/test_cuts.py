"""OutputParser on made-up outputs: cuts change nothing, nothing is lost, and the work grows with the text."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.parsers.assemble import AssembledCall, Assembler
from smg.parsers.tools import TOOL_PARSERS
from tests.examples import examples
from tests.unit.smg.parsers.replay import assembled, output_parser, replay, replay_in_lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=4)
NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name.isprintable())
CALLS = st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3)
INDENTS = st.sampled_from([None, 0, 2])
CUTS = st.lists(st.integers(0, 600), max_size=8)
# Outputs made of what matters to a parser, in any order.
SCRAPS = st.lists(
    st.sampled_from(
        ["<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "f", "arguments": {', "}", "}}", "[", "]", " ", "\n",
         "x", "<", "</t", '"', "\\", ",", ":", '{"name": "g"}', '"parameters": {"a": [1]}', "null", "-1.5", "é🗼"]
    ),
    max_size=14,
).map("".join)  # fmt: skip


def split(text: str, cuts: list[int]) -> list[str]:
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@examples(13)
@given(CALLS, INDENTS, CUTS, st.booleans(), st.booleans())
def test_hermes_calls_come_back_as_they_were_meant(
    calls: list[tuple[str, dict[str, Any]]],
    indent: int | None,
    cuts: list[int],
    name_first: bool,
    escaped: bool,
) -> None:
    written = ""
    for name, arguments in calls:
        call = (
            {"name": name, "arguments": arguments} if name_first else {"arguments": arguments, "name": name}
        )
        written += f"<tool_call>\n{json.dumps(call, indent=indent, ensure_ascii=escaped)}\n</tool_call>\n"
    answer = assembled(replay(output_parser(tools="hermes"), split(written, cuts)))
    assert answer.content is None
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == calls
    if not escaped:
        assert [call.arguments for call in answer.calls] == [compact(arguments) for _, arguments in calls]


@examples(13)
@given(CALLS, INDENTS, CUTS, st.sampled_from(["json", "required"]))
def test_arrays_of_calls_come_back_as_they_were_meant(
    calls: list[tuple[str, dict[str, Any]]], indent: int | None, cuts: list[int], tools: str
) -> None:
    written = json.dumps(
        [{"name": name, "parameters": arguments} for name, arguments in calls], indent=indent
    )
    answer = assembled(replay(output_parser(tools=tools), split(written, cuts)))
    assert answer.content is None
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == calls


@examples(13)
@given(JSON_VALUES, INDENTS, CUTS)
def test_json_answers_come_back_as_they_were_written(value: Any, indent: int | None, cuts: list[int]) -> None:
    written = json.dumps({"answer": value}, indent=indent)
    answer = assembled(replay(output_parser(tools="json"), split(written, cuts)))
    assert answer == (written, None, ())


@examples(13)
@given(ARGUMENTS, INDENTS, CUTS)
def test_a_named_function_gets_the_whole_output(
    arguments: dict[str, Any], indent: int | None, cuts: list[int]
) -> None:
    written = json.dumps(arguments, indent=indent, ensure_ascii=False)
    answer = assembled(replay(output_parser(tools="named"), split(written, cuts)))
    assert answer == (None, None, (AssembledCall("get_weather", None, compact(arguments)),))


@given(
    SCRAPS,
    CUTS,
    st.sampled_from([*TOOL_PARSERS, "required", "named", None]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_cuts_change_nothing_in_any_output(
    text: str, cuts: list[int], tools: str | None, is_cut: bool, starts_inside: bool, one_call: bool
) -> None:
    def parser() -> Any:
        max_calls = 1 if one_call else None
        return output_parser(
            tools=tools, reasoning="think_tag", starts_inside=starts_inside, max_calls=max_calls
        )

    whole = assembled(replay(parser(), [text], is_cut=is_cut))
    assert assembled(replay(parser(), split(text, cuts), is_cut=is_cut)) == whole
    assert assembled(replay_in_lanes(parser(), list(text), is_cut=is_cut)) == whole
    for call in whole.calls:
        assert isinstance(json.loads(call.arguments), dict)
    for tag in ("<think>", "</think>"):
        assert tag not in (whole.reasoning or "")


@examples(13)
@given(SCRAPS, st.sampled_from([*TOOL_PARSERS, "required", "named"]), st.booleans())
def test_an_output_without_a_call_comes_back_as_it_was_written(text: str, tools: str, is_cut: bool) -> None:
    answer = assembled(replay(output_parser(tools=tools), [text], is_cut=is_cut))
    if not answer.calls:
        assert answer.content == (text or None)


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ("hermes", ' \n<tool_call>\n{"name": "f", "arguments": {"a": ["x\\n", 1.50]}}\n</tool_call>'),
        ("json", '\n{"name": "f", "arguments": {"a": ["x\\n", 1.50]}}'),
        ("required", '[{"name": "f", "parameters": {"a": ["x\\n", 1.50]}}'),
        ("named", ' {"a": ["x\\n", 1.50]}'),
    ],
    ids=["hermes", "json", "required", "named"],
)
def test_a_call_cut_anywhere_comes_back_as_it_was_written(tools: str, text: str) -> None:
    # The array's call is complete with its brace.
    for end in range(1, len(text)):
        for parts in ([text[:end]], list(text[:end])):
            answer = assembled(replay(output_parser(tools=tools), parts, is_cut=True))
            assert answer == (text[:end], None, ())
    answer = assembled(replay(output_parser(tools=tools), [text], is_cut=True))
    assert (answer.content, len(answer.calls)) == (None, 1)


class CountedText(str):
    """Counts the characters that are copied out of texts like it."""

    copied = 0

    def __getitem__(self, key: Any) -> str:
        part = super().__getitem__(key)
        CountedText.copied += len(part)
        return part


@pytest.mark.parametrize(
    ("tools", "unit"),
    [
        ("qwen3_coder", "<tool_call><function=f><parameter=a>\n1\n</parameter></function></tool_call>"),
        ("qwen3_coder", "<function=f><parameter=a>x</para</function>"),
        ("qwen3_coder", "<tool_call><tool_call><function=f>x</function>"),
        ("glm45", '<tool_call>f<arg_key>a</arg_key><arg_value>"\n</arg_value></tool_call>'),
        (
            "kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        ),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}'),
        ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}}, 1'),
        (
            "deepseek_v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```",
        ),
        ("pythonic", "[f(a='x\\n', b=[1.5, {'k': None}]), g()]"),
        ("pythonic", "[f(a='some words', b=12)] ["),
        ("gemma4", '<|tool_call>call:f{a:<|"|>x<|"|>,b:[1,y]}<tool_call|>'),
        ("llama3_json", '<|python_tag|>{"name":"f","parameters":{}};'),
        ("hermes", '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>\n'),
        ("hermes", '<tool_call>{"name":"f","arguments":{"a":1}}'),
        ("hermes", '<tool_call>{"name":"f","arguments":{"a":]}}</tool_call>'),
        ("hermes", "<tool_call>"),
        ("hermes", "</think>a<tool_cal"),
        ("json", '{"name":"f","arguments":{"a":1}}\n'),
        ("json", '[{"name":"f","arguments":{}}, {"name":"f","arguments":{}}]'),
        ("json", "<think> </think> "),
        ("required", '[{"name":"f","parameters":{"a":1.5}},'),
        ("named", '{"a":[],"b":"\\u00fc\\n",'),
    ],
    ids=str,
)
def test_work_on_one_long_text_grows_with_the_text(tools: str, unit: str) -> None:
    text = CountedText(unit * 400)
    CountedText.copied = 0
    parser = output_parser(tools=tools, reasoning="think_tag")
    assembled([*parser.feed(text), *parser.finish(is_cut=False)])
    assert 0 < CountedText.copied < 12 * len(text)


def kept_texts(thing: Any) -> Iterator[str]:
    """Every text that the parser keeps, wherever in its parts."""
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, (list, tuple, dict)):
        for part in thing.values() if isinstance(thing, dict) else thing:
            yield from kept_texts(part)
    elif type(thing).__module__.startswith("smg.parsers"):
        names = [*getattr(thing, "__dict__", ()), *getattr(type(thing), "__slots__", ())]
        for name in names:
            yield from kept_texts(getattr(thing, name))


KEEPING = {
    "a value of a text format": ("qwen3_coder", "<tool_call><function=f><parameter=a>", "x"),
    "line breaks of a value": ("qwen3_coder", "<tool_call><function=f><parameter=a>", "\n"),
    "a name of a text format": ("qwen3_coder", "<tool_call><function=", "x"),
    "a key of a text format": ("glm45", "<tool_call>f<arg_key>", "x"),
    "white space between tags": ("glm45", "<tool_call>f<arg_key>a</arg_key>", " "),
    "a string of Python": ("pythonic", '[f(a="', "x"),
    "a number of Python": ("pythonic", "[f(a=", "1"),
    "a string of Gemma": ("gemma4", '<|tool_call>call:f{a:<|"|>', "x"),
    "text of Gemma": ("gemma4", "<|tool_call>call:f{a:", "x"),
    "what does not fit in a section": ("kimi_k2", "<|tool_calls_section_begin|>x", "x"),
    "spaces in a section": ("kimi_k2", "<|tool_calls_section_begin|>", " "),
    "spaces behind a mark": ("mistral", "[TOOL_CALLS]", " "),
    "arguments": ('<tool_call>{"name": "f", "arguments": {"a": "', "x"),
    "arguments before the name": ('<tool_call>{"arguments": {"a": "', "x"),
    "arguments as a string": ('<tool_call>{"name": "f", "arguments": "', "x"),
    "a name": ('<tool_call>{"name": "', "x"),
    "a key": ('<tool_call>{"', "x"),
    "a number": ('<tool_call>{"name": "f", "arguments": {"a": ', "1"),
    "white space inside of a call": ('<tool_call>{"name": "f", "arguments": {"a": ', " "),
    "a broken call": ('<tool_call>{"name": "f", "arguments": {]', "x"),
    "white space": ("", "\n"),
    "white space behind a call": ('<tool_call>{"name": "f"}</tool_call>', "\n"),
    "white space before an end marker": ('<tool_call>{"name": "f"}', " "),
    "reasoning": ("<think>", "x"),
    "brackets": ("", "<"),
}


# What is kept from one piece to the next may be a growing list, never a growing text: that would be copied every time.
@pytest.mark.parametrize("kind", KEEPING, ids=str)
def test_no_text_grows_from_piece_to_piece(kind: str) -> None:
    *tools, head, character = KEEPING[kind]
    parser = output_parser(tools=tools[0] if tools else "hermes", reasoning="think_tag", hold_reasoning=True)
    longest = max(map(len, parser.markup))
    parser.feed(head)
    for _ in range(1000):
        parser.feed(character)
    assert max(map(len, kept_texts(parser))) <= max(len(head), longest)


LENGTH = 200_000


@pytest.mark.slow
def test_long_arguments_in_pieces_of_one_character() -> None:
    parser, assembler = output_parser(tools="hermes", reasoning="think_tag"), Assembler()
    assembler.add(parser.feed('<tool_call>{"name": "f", "arguments": {"a": "'))
    for _ in range(LENGTH):
        assembler.add(parser.feed("x"))
    assembler.add(parser.feed('"}}</tool_call>'))
    assembler.add(parser.finish(is_cut=False))
    (call,) = assembler.assembled().calls
    assert len(call.arguments) == LENGTH + len('{"a":""}')
