"""HarmonyParser: channels become reasoning, content and calls. tests/golden/output/harmony.jsonl has more answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from smg.parsers.assemble import Assembled, AssembledCall, assemble
from smg.parsers.events import CallBroken, CallEnd, CallStart, Content, Reasoning
from smg.parsers.harmony import HarmonyParser

THOUGHT = "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "<b> \\"é"}<|call|>'
FINAL = "<|channel|>final<|message|>Hi < there"
ARGUMENTS = '{"a":"<b> \\"é"}'


def read(text: str, step: int = 10**9, *, is_cut: bool = False, **options: Any) -> Assembled:
    parser = HarmonyParser(**{"takes_calls": True, **options})
    pieces: list[Any] = []
    for start in range(0, len(text), step):
        pieces += parser.feed(text[start : start + step])
    return assemble([*pieces, *parser.finish(is_cut=is_cut)])


def call(arguments: str = ARGUMENTS, name: str = "f") -> AssembledCall:
    return AssembledCall(name, None, arguments)


def test_a_call_that_was_cut_is_text() -> None:
    text = '<|channel|>commentary to=functions.f<|message|>{"a": 1'
    assert read(text, is_cut=True) == ('{"a": 1', None, ())
    assert read(text + "}", is_cut=True).calls == (call('{"a":1}'),)
    assert read("<|channel|>commentary to=functions.f<|message|>", is_cut=True) == (None, None, ())


def test_calls_that_nobody_takes_are_content() -> None:
    assert read(CALL, takes_calls=False) == ('{"a": "<b> \\"é"}', None, ())


def test_calls_behind_the_last_allowed_one_are_dropped() -> None:
    assert read(CALL + "<|start|>assistant" + CALL + FINAL, 3, max_calls=1) == ("Hi < there", None, (call(),))


def test_reasoning_stays_in_the_content_if_it_is_not_to_be_told_apart() -> None:
    assert read(THOUGHT + FINAL, 4, separates=False) == ("Think.Hi < there", None, ())


def test_a_message_that_goes_on_is_content_at_once() -> None:
    assert read(" more<|return|>", is_open=True) == (" more", None, ())


def test_reasoning_is_held() -> None:
    parser = HarmonyParser(takes_calls=True, hold_reasoning=True)
    assert parser.feed("<|channel|>analysis<|message|>One") == []
    assert parser.feed(" two") == []
    assert parser.feed("<|end|>") == [Reasoning("One two")]


def test_lanes_and_reasoning() -> None:
    parser = HarmonyParser(takes_calls=True)
    seen = []
    for text in (
        "<|channel|>",
        "analysis",
        "<|message|>",
        "a",
        "<|end|>",
        "<|start|>",
        "assistant",
        CALL,
        FINAL,
    ):
        parser.feed(text)
        seen.append((parser.lane, parser.is_reasoning))
    assert seen[:7] == [
        (None, False),
        (None, False),
        ("reasoning", True),
        ("reasoning", True),
        ("content", False),
        (None, False),
        (None, False),
    ]
    assert seen[-1] == ("content", False)
    assert parser.feed("plain") == [Content("plain")]


def test_a_call_starts_before_its_arguments_are_there() -> None:
    parser = HarmonyParser(takes_calls=True)
    assert parser.feed("<|channel|>commentary to=functions.f<|message|>") == [CallStart(0, "f")]
    parser.feed('{"a"')
    assert parser.feed(":1}<|call|>")[-1] == CallEnd(0)
    parser.feed("<|start|>assistant to=functions.g<|channel|>commentary<|message|>{x")
    assert parser.finish(is_cut=False) == [CallBroken(1, "{x")]


@pytest.mark.parametrize("seed", range(40))
def test_any_text_is_read_alike_however_it_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    scraps = [
        "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>", "assistant",
        "analysis", "final", "commentary", " to=functions.f", "<|", "<", "|>", "{", "}", '{"a": [1, "x"]}', "text ", "\n",
    ]  # fmt: skip
    text = "".join(chance.choices(scraps, k=30))
    for is_cut in (False, True):
        whole = read(text, is_cut=is_cut)
        assert all(read(text, step, is_cut=is_cut) == whole for step in (1, 2, 3, 4, 9))
