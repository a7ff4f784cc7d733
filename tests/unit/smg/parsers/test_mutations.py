"""Every format on its golden outputs made worse: cuts change nothing, nothing is lost, and what counts is JSON."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.parsers.harmony import HARMONY, HarmonyParser
from smg.parsers.reasoning import reasoning_parser
from smg.parsers.tools import TOOL_PARSERS, tool_parser
from tests.examples import examples
from tests.unit.smg.parsers.replay import assembled, golden, output_parser, replay, replay_in_lanes

FORMATS = (*TOOL_PARSERS, HARMONY)
OUTPUTS: dict[str, list[str]] = {}
for _stem, _case in (*golden("tools"), *golden("output")):
    if _stem in FORMATS:
        OUTPUTS.setdefault(_stem, []).append(_case["text"])
SCRAPS = [
    "{", "}", "[", "]", "(", ")", ",", ":", "=", ";", '"', "'", "\\", "\n", " ", "x", "f", "name", "}}", "1", "-", "null",
    "True", "é🗼", "<", "</", "|>", "<think>", "</think>", 'a="x"', "f(a=1)", "`", "```", "function", 'string="true">',
    'name="f">', "call:f{", "a:1", '{"name": "f", "arguments": {', '"parameters": {"a": 1}}',
]  # fmt: skip
MOST_CHARS = 400


def worsened(name: str, rng: random.Random) -> str:
    """An output of the format with some of it gone, changed, doubled; or scraps in any order."""
    markup = HarmonyParser.markup if name == HARMONY else tool_parser(name).markup
    scraps = [*markup * 2, *SCRAPS]
    if rng.random() < 0.4:
        return "".join(rng.choice(scraps) for _ in range(rng.randrange(1, 14)))
    text = rng.choice(OUTPUTS[name])
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        change = rng.randrange(4)
        if change == 0:
            text = text[:at] + text[at + rng.randrange(1, 12) :]
        elif change == 1:
            text = text[:at] + rng.choice(scraps) + text[at:]
        elif change == 2:
            text = text[:at]
        else:
            text += rng.choice(OUTPUTS[name])
    return text[:MOST_CHARS]


def check(name: str, rng: random.Random) -> None:
    text, is_cut = worsened(name, rng), rng.random() < 0.4
    reasoning = rng.choice([None, "think_tag"])
    options: dict[str, Any] = {"tools": name, "max_calls": rng.choice([None, None, 1])}
    if name != HARMONY:
        options |= {"reasoning": reasoning, "starts_inside": reasoning is not None and rng.random() < 0.2}
    whole = assembled(replay(output_parser(**options), [text], is_cut=is_cut))
    bounds = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(5)))
    parts = [text[start:end] for start, end in pairwise([0, *bounds, len(text)])]
    for way in (list(text), parts):
        assert assembled(replay(output_parser(**options), way, is_cut=is_cut)) == whole, (text, way, options)
    assert assembled(replay_in_lanes(output_parser(**options), parts, is_cut=is_cut)) == whole, (
        text,
        options,
    )
    for call in whole.calls:
        assert isinstance(json.loads(call.arguments), dict), text
    if reasoning is None and not whole.calls and name != HARMONY:
        assert whole.content == (text or None)


@examples(50)
@given(st.sampled_from(FORMATS), st.integers(0, 1 << 32))
def test_worse_outputs(name: str, seed: int) -> None:
    check(name, random.Random(seed))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FORMATS, ids=str)
def test_many_worse_outputs(name: str) -> None:
    rng = random.Random(name)
    for _ in range(5000):
        check(name, rng)


REASONED: dict[str, list[str]] = {}
for _stem, _case in golden("reasoning"):
    REASONED.setdefault(_stem, []).append(_case["text"])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", REASONED, ids=str)
def test_many_worse_outputs_with_reasoning(name: str) -> None:
    rng = random.Random(name)
    for _ in range(5000):
        check_reasoning(name, rng)


@examples(50)
@given(st.sampled_from(sorted(REASONED)), st.integers(0, 1 << 32))
def test_worse_outputs_with_reasoning(name: str, seed: int) -> None:
    check_reasoning(name, random.Random(seed))


def check_reasoning(name: str, rng: random.Random) -> None:
    tags = reasoning_parser(name, starts_inside=False).tags
    pieces = [*tags * 3, *REASONED[name], "x", " \n", "a < b", *(tag[: len(tag) // 2] for tag in tags)]
    text = "".join(rng.choice(pieces) for _ in range(rng.randrange(8)))[:MOST_CHARS]
    options: dict[str, Any] = {
        "reasoning": name,
        "starts_inside": rng.random() < 0.5,
        "hold_reasoning": rng.random() < 0.3,
    }
    whole = assembled(replay(output_parser(**options), [text]))
    bounds = sorted(rng.randrange(len(text) + 1) for _ in range(4))
    parts = [text[start:end] for start, end in pairwise([0, *bounds, len(text)])]
    for way in (list(text), parts):
        assert assembled(replay(output_parser(**options), way)) == whole, (text, way, options)
    assert assembled(replay_in_lanes(output_parser(**options), parts)) == whole, (text, options)
    # Nothing is lost but tags and white space.
    plain = text
    for tag in tags:
        plain = plain.replace(tag, "")
    kept = (whole.content or "") + (whole.reasoning or "")
    assert len("".join(kept.split())) >= len("".join(plain.split())), (text, options)


# One call with a long value in the place of %s, for the formats that differ in how values are read.
LONG = {
    HARMONY: '<|channel|>commentary to=functions.f<|message|>{"a": "%s"}<|call|>',
    "hermes": '<tool_call>{"name": "f", "arguments": {"a": "%s"}}</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\n%s\n</parameter>\n</function>\n</tool_call>",
    "glm45": "<tool_call>f<arg_key>a</arg_key><arg_value>%s</arg_value></tool_call>",
    "kimi_k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        '{"a": "%s"}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "pythonic": "[f(a='%s')]",
    "gemma4": '<|tool_call>call:f{a:<|"|>%s<|"|>}<tool_call|>',
    "mistral": '[TOOL_CALLS]f[ARGS]{"a": "%s"}',
}


@pytest.mark.parametrize("name", LONG, ids=str)
def test_a_value_of_a_megabyte_comes_through_whole(name: str) -> None:
    value = "lorem <b> 1/2, " * 70_000
    schemas = [{"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}]
    parser = output_parser(tools=name, schemas=schemas)
    text = LONG[name] % value
    parts = [text[at : at + 4096] for at in range(0, len(text), 4096)]
    (call,) = assembled(replay(parser, parts)).calls
    assert json.loads(call.arguments) == {"a": value}
