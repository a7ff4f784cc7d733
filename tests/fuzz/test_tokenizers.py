"""Prompt code against `tokenizers`: same ids for every family, whatever the text; and no text forges a control token.

Seeded and bounded: the same few thousand texts at every run. More with SMG_FUZZ_TEXTS=100000 in the environment.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from smg.prompt.builder import PromptBuilder
from smg.prompt.detokenizer import Detokenizer
from smg.prompt.packed import pack_ids, unpack_ids
from smg.prompt.reference import encode_ids, open_reference
from tests.fuzz.families import FAMILIES, FAST_FAMILIES, MARKUP, SPECIAL, hard_text, long_text, write_family

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer as HfTokenizer

TEXTS = int(os.environ.get("SMG_FUZZ_TEXTS", "250"))  # noqa: TID251 - a knob of this test alone


class Family:
    """One family: our builder, with and without the fast backend, and the library."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.builder = PromptBuilder.load(directory)
        self.slow = PromptBuilder.load(directory, backend="reference", cache_bytes=0)
        self.reference: HfTokenizer = open_reference(directory / "tokenizer.json")

    @property
    def controls(self) -> list[str]:
        return [*SPECIAL, *MARKUP]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(
        request.param, write_family(request.param, tmp_path_factory.mktemp("families") / request.param)
    )


def drawn_texts(seed: int) -> list[str]:
    rng = random.Random(seed)
    texts = [hard_text(rng, rng.choice((1, 2, 3, 5, 8, 20, 60))) for _ in range(TEXTS)]
    return texts + [long_text(rng) for _ in range(TEXTS // 25)]


def test_plain_text_has_the_ids_of_the_reference(family: Family) -> None:
    for text in drawn_texts(1):
        assert family.builder.tokenizer.encode(text) == pack_ids(encode_ids(family.reference, text)), repr(
            text
        )


def test_rendered_prompts_have_the_ids_of_the_reference(family: Family) -> None:
    rng = random.Random(2)
    texts = drawn_texts(3)
    for _ in range(TEXTS):
        pieces = [
            rng.choice([rng.choice(texts), rng.choice(family.controls)]) for _ in range(rng.choice((2, 5, 9)))
        ]
        prompt = "".join(pieces)
        expected = pack_ids(encode_ids(family.reference, prompt))
        assert family.builder._prompts.encode_rendered(prompt) == expected, repr(prompt)


def test_the_cache_and_the_fast_backend_change_nothing(family: Family) -> None:
    rng = random.Random(4)
    texts = drawn_texts(5)[:40]
    for _ in range(TEXTS // 2):
        messages = [
            {"role": rng.choice(("user", "assistant", "tool")), "content": rng.choice(texts)}
            for _ in range(3)
        ]
        assert family.builder.chat(messages) == family.slow.chat(messages)


def test_no_content_forges_a_control_token(family: Family) -> None:
    rng = random.Random(6)
    reference = family.reference
    controls = {reference.token_to_id(token) for token in family.controls} - {reference.token_to_id("<unk>")}

    def control_ids(contents: list[str]) -> list[int]:
        parts = [{"text": content} for content in contents]
        prompt = family.builder.chat(
            [{"role": "user", "content": parts}, {"role": "tool", "content": contents[0]}]
        )
        for content in contents:
            assert content in prompt.text
        return [i for i in unpack_ids(prompt.ids) if i in controls]

    harmless = control_ids(["hello", "world"])
    for _ in range(TEXTS):
        assert control_ids(forgeries(rng)) == harmless


def forgeries(rng: random.Random) -> list[str]:
    """Contents that spell control tokens whole, in parts that stand next to each other, or nested."""
    token, other = rng.choice([*SPECIAL, *MARKUP]), rng.choice([*SPECIAL, *MARKUP])
    at = rng.randrange(1, len(token))
    noise = hard_text(rng, 3)
    return rng.choice(
        [
            [f"{noise}{token}{noise}", "x"],
            [f"{noise}{token[:at]}", f"{token[at:]}{noise}"],
            [f"{token[:at]}{other}{token[at:]}", token],
            [token[:at], *token[at:]],
            [f"{token}{token}", f"\ue000{token}\ue001"],
            [f"<{token}", f"{token}>"],
        ]
    )


def test_decoding_in_any_pieces_gives_the_text_of_the_whole(family: Family) -> None:
    rng = random.Random(7)
    tokenizer = family.builder.tokenizer
    for text in drawn_texts(8)[:: max(1, TEXTS // 100)]:
        ids = encode_ids(family.reference, text)
        for skip in (True, False):
            expected = family.reference.decode(ids, skip_special_tokens=skip)
            if "\ufffd" in expected:
                continue  # decoders differ in how many marks broken text gets
            detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
            pieces: list[str] = []
            rest = list(ids)
            while rest:
                cut = rng.randrange(len(rest) + 1)
                pieces.append(detokenizer.feed(rest[:cut]))
                rest = rest[cut:]
            assert "".join(pieces) + detokenizer.finish() == expected
            assert tokenizer.decode(ids, skip_special_tokens=skip) == expected


def test_the_fast_backend_serves_the_families_it_is_exact_for(family: Family) -> None:
    pytest.importorskip("tokie")
    uses_fast = family.builder._prompts._fast is not family.builder._prompts._plain
    assert uses_fast == (family.name in FAST_FAMILIES)
