"""Loads the parts of a PromptBuilder, and checks on probes what each shortcut takes for granted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.prompt.control import ControlCuts, added_tokens_of
from smg.prompt.fast import load_fast_encoder, supported_kind
from smg.prompt.packed import pack_ids
from smg.prompt.parts import SafeCuts
from smg.prompt.reading import Pairing
from smg.prompt.reference import PlainEncoder, WholeEncoder, encode_ids, open_reference, without_start_prefix
from smg.prompt.segments import PromptEncoder, SegmentCache
from smg.prompt.tokenizer import Tokenizer
from smg.prompt.vocabulary import vocabulary_from_reference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokenizers import Tokenizer as HfTokenizer

    from smg.prompt.control import AddedTokens, ControlToken
    from smg.prompt.directory import TokenizerDirectory
    from smg.prompt.vocabulary import Vocabulary

_MOST_COMPOSED = 4  # characters that NFC makes one of
_PROBED_TOKENS = 12
_PROBE, _OTHER_PROBE = "Hello", "World 2"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a PromptBuilder is made of.

    Attributes:
        plain: encodes text as text, and tells where tokens stand.
        prefix: packed ids that the tokenizer puts before a text. suffix: and after it.
        pairing: what it puts around two texts; None where it does something else to them.
        named_tokens: bos_token and the like, for templates.
        longest_token: most characters of a text that one token can stand for; None where that is not known.
        summary: for the log, which shortcuts are used and why others are not.
    """

    tokenizer: Tokenizer
    prompts: PromptEncoder
    controls: tuple[ControlToken, ...]
    plain: PlainEncoder
    prefix: bytes
    suffix: bytes
    pairing: Pairing | None
    named_tokens: dict[str, str]
    longest_token: int | None
    summary: str


def load_parts(found: TokenizerDirectory, template_text: str, *, use_fast: bool, cache_bytes: int) -> Parts:
    """Load and check.

    Args:
        found: the directory.
        template_text: what the templates write literally.
        use_fast: take the fast backend if it proves exact.
        cache_bytes: bound of the segment cache.

    Raises:
        ValueError: the tokenizer cannot be read or is of a kind that is not supported.
    """
    reference = open_reference(found.tokenizer_json)
    added = added_tokens_of(reference, template_text)
    vocabulary, is_table_exact = vocabulary_from_reference(reference)
    prefix, suffix = _surroundings(reference)
    pairing = _pairing(reference)
    probes = [(probe, pack_ids(encode_ids(reference, probe))) for probe in _prompt_probes(added.controls)]
    # From here on `reference` encodes control tokens as text: nothing above may be asked of it again.
    plain = PlainEncoder(reference, added.controls)
    prompts, summary = _prompt_encoder(found.tokenizer_json, plain, added, probes)
    kind = supported_kind(reference)
    fast = None
    if use_fast and prompts.is_uniform:
        fast, reason = load_fast_encoder(found.tokenizer_json, reference, plain, added.content)
        summary = f"{summary}, {reason}"
    parts = SafeCuts(added.content) if kind is not None and prompts.is_uniform else None
    prompts = prompts.finished(SegmentCache(cache_bytes), fast, parts)
    tokenizer = Tokenizer(
        vocabulary,
        encode=prompts.encode_text,
        eos_ids=_eos_ids(found, reference),
        reference=None if is_table_exact else open_reference(found.tokenizer_json),
    )
    longest = None if kind is None else _longest_token(reference, vocabulary)
    return Parts(
        tokenizer,
        prompts,
        added.controls,
        plain,
        prefix,
        suffix,
        pairing,
        found.named_tokens,
        longest,
        summary,
    )


def _longest_token(reference: HfTokenizer, vocabulary: Vocabulary) -> int | None:
    """Most characters that one token can stand for, where nothing of a text is dropped. Bytes bound characters."""
    if any(token.lstrip or token.rstrip for token in reference.get_added_tokens_decoder().values()):
        return None
    longest = max(map(len, vocabulary.bytes_with_specials), default=0)
    return longest if reference.normalizer is None else longest * _MOST_COMPOSED


def _prompt_encoder(
    path: Path, plain: PlainEncoder, added: AddedTokens, probes: list[tuple[str, bytes]]
) -> tuple[PromptEncoder, str]:
    """The first way to cut prompts that gives what the reference gives without cutting."""
    cuts = ControlCuts(added.controls)
    nothing_kept = SegmentCache(0)

    def is_exact(encoder: PromptEncoder) -> bool:
        return all(encoder.encode_rendered(probe) == expected for probe, expected in probes)

    encoder = PromptEncoder(cuts, plain=plain, cache=nothing_kept)
    if is_exact(encoder):
        return encoder, "cut into segments"
    inner = without_start_prefix(path)
    if inner is not None:
        inner_encoder = PlainEncoder(inner, added.controls)
        encoder = PromptEncoder(cuts, plain=inner_encoder, start=plain, cache=nothing_kept)
        if is_exact(encoder):
            return encoder, "cut into segments, the first apart"
    whole = WholeEncoder(open_reference(path))
    encoder = PromptEncoder(cuts, plain=plain, whole=whole, cache=nothing_kept)
    return encoder, "not cut: its segments depend on each other"


def _prompt_probes(controls: tuple[ControlToken, ...]) -> Iterator[str]:
    """Prompts in which control tokens stand in every way that could make what follows depend on them."""
    yield from ("Hello world", " leading", "trailing ", "\n", "  two  \n\n x")
    # Tokens with flags of their own first: they are the ones that could spoil it.
    by_flags = sorted(
        controls, key=lambda token: not (token.strips_left or token.strips_right or token.single_word)
    )
    for token in by_flags[:_PROBED_TOKENS]:
        text = token.text
        yield from (
            f"{text}Hello",
            f"Hello{text}",
            f"a {text} b",
            f"a{text}b{text}c",
            f"{text}{text} x",
            f"{text}\n\nUser: hi\n",
        )
        yield from (
            f" {text}",
            f"x  {text}  \n y",
            f"1{text}2",
            f"'{text}s",
            f"{text}\u00e9 {text}\u4e16\u754c",
        )


def _surroundings(reference: HfTokenizer) -> tuple[bytes, bytes]:
    """Packed ids that the post-processor puts around one text.

    Raises:
        ValueError: it does something else.
    """
    inner = encode_ids(reference, _PROBE)
    outer = reference.encode(_PROBE).ids
    for start in range(len(outer) - len(inner) + 1) if inner else ():
        prefix, suffix = outer[:start], outer[start + len(inner) :]
        other = [*prefix, *encode_ids(reference, _OTHER_PROBE), *suffix]
        if outer[start : start + len(inner)] == inner and reference.encode(_OTHER_PROBE).ids == other:
            return pack_ids(prefix), pack_ids(suffix)
    msg = "the tokenizer's post-processor changes the ids of a text; only adding some around it is supported"
    raise ValueError(msg)


def _pairing(reference: HfTokenizer) -> Pairing | None:
    """What the post-processor puts around two texts."""
    first, second = encode_ids(reference, _PROBE), encode_ids(reference, _OTHER_PROBE)
    outer = reference.encode(_PROBE, _OTHER_PROBE).ids
    start = _place(outer, first, 0)
    middle = _place(outer, second, start + len(first)) if start >= 0 else -1
    if middle < 0:
        return None
    end = middle + len(second)
    return Pairing(
        pack_ids(outer[:start]), pack_ids(outer[start + len(first) : middle]), pack_ids(outer[end:])
    )


def _place(ids: list[int], wanted: list[int], start: int) -> int:
    """Where some ids stand among others; -1 for nowhere."""
    for place in range(start, len(ids) - len(wanted) + 1 if wanted else start):
        if ids[place : place + len(wanted)] == wanted:
            return place
    return -1


def _eos_ids(found: TokenizerDirectory, reference: HfTokenizer) -> frozenset[int]:
    named = reference.token_to_id(found.named_tokens.get("eos_token", ""))
    return found.eos_ids if named is None else found.eos_ids | {named}
