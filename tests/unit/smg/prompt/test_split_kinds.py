"""Split kinds: the guard finds the places where the fast backend departs from the reference, and few others."""

from __future__ import annotations

import pytest

from smg.prompt.fast import FastEncoder
from smg.prompt.packed import pack_ids, unpack_ids
from smg.prompt.split_kinds import SplitKind, split_kind_of
from tests.fuzz.families import LLAMA3, QWEN2

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
AFTER_SPLIT = BYTE_LEVEL | {"use_regex": False}


def sequence(*parts: dict[str, object]) -> dict[str, object]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def by(regex: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


GPT2 = split_kind_of(BYTE_LEVEL)
CL100K = split_kind_of(sequence(by(LLAMA3), AFTER_SPLIT))


@pytest.mark.parametrize(
    ("pre_tokenizer", "name"),
    [
        (BYTE_LEVEL, "gpt2"),
        (sequence({"type": "Digits", "individual_digits": True}, BYTE_LEVEL), "gpt2"),
        (sequence(by(LLAMA3), AFTER_SPLIT), "cl100k"),
        (sequence(by(QWEN2), AFTER_SPLIT), "cl100k"),
    ],
)
def test_known_pre_tokenizers_have_a_kind(pre_tokenizer: dict[str, object], name: str) -> None:
    kind = split_kind_of(pre_tokenizer)
    assert kind is not None
    assert kind.name == name


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        None,
        BYTE_LEVEL | {"add_prefix_space": True},
        sequence({"type": "Digits", "individual_digits": False}, BYTE_LEVEL),
        sequence(by(LLAMA3.replace("1,3", "1,2")), AFTER_SPLIT),
        sequence(by(LLAMA3) | {"behavior": "Removed"}, AFTER_SPLIT),
        sequence(by("a"), by("b"), AFTER_SPLIT),
        {"type": "Metaspace", "replacement": "▁"},
    ],
)
def test_others_have_none(pre_tokenizer: dict[str, object] | None) -> None:
    assert split_kind_of(pre_tokenizer) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (CL100K, "x\t.K"),
        (CL100K, '{\n\t"key": 1'),
        (CL100K, "a\t_b"),
        (CL100K, "a\n \nb"),
        (CL100K, "a\n\t \r\nb"),
        (CL100K, "a\r  \rb"),
        (GPT2, "a\t's"),
        *[
            (kind, text)
            for kind in (GPT2, CL100K)
            for text in ("\x0b", "\x85", "\u00a0x", "\u3000", "\u2167", "\u24b6", "'\u017f", "\U00010348")
        ],
    ],
)
def test_the_guard_finds_what_differs(kind: SplitKind, text: str) -> None:
    assert kind.guarded(text)


@pytest.mark.parametrize("kind", [GPT2, CL100K], ids=["gpt2", "cl100k"])
@pytest.mark.parametrize(
    "text",
    [
        "Hello world, don't we'll\n\n    def f(x):\n\treturn x  \n",
        "\tif (a) {\r\n\t\treturn;\r\n\t}\n",
        "h\u00e9llo stra\u00dfe \u65e5\u672c\u8a9e\u3001\ud55c\uad6d\uc5b4 \u0639\u0631\u0628 \u0416\u0438\u0437\u043d\u044c \u201cq\u201d \u2014 \u20ac5 \U0001f600\u200d\u2764\ufe0f",
    ],
)
def test_the_guard_lets_ordinary_text_pass(kind: SplitKind, text: str) -> None:
    assert kind.guarded(text) == []


def test_added_tokens_that_text_may_spell_are_guarded_on_request() -> None:
    kind = GPT2.with_content(["    ", "<br>"])
    assert kind.guarded("a<br>b") == [(1, 5)]
    assert GPT2.with_content([]) is GPT2


class Recorder:
    """An encoder that returns character codes and remembers what it was given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def ids(self, text: str) -> list[int]:
        self.seen.append(text)
        return [ord(char) for char in text]

    def encode(self, text: str) -> bytes:
        return pack_ids(self.ids(text))


def encode(text: str) -> tuple[list[str], list[str]]:
    """What the fast encoder sent to the backend, and to the reference."""
    backend, reference = Recorder(), Recorder()
    packed = FastEncoder(backend.ids, reference, CL100K).encode(text)
    assert "".join(map(chr, unpack_ids(packed))) == text
    return backend.seen, reference.seen


def test_only_the_surroundings_of_a_guarded_place_go_to_the_reference() -> None:
    before, after = "some words " * 60, " and more words" * 60
    backend, reference = encode(f"{before}here\t.K there{after}")
    assert reference == [" here\t.K"]
    assert len(backend) == 2


def test_neighbouring_places_go_together() -> None:
    _, reference = encode("some words " * 60 + "x\t.Ky\t.Kz there" + " and more words" * 60)
    assert reference == [" x\t.Ky\t.Kz"]


@pytest.mark.parametrize(
    "text",
    ["short\t.K text", "nocuts" * 100 + "\t.K", "\t.K a" * 200],
    ids=["short", "nowhere to cut", "most of it"],
)
def test_a_text_not_worth_dividing_goes_to_the_reference_whole(text: str) -> None:
    backend, reference = encode(text)
    assert reference == [text]
    assert backend == []
