r"""Writes log-probabilities in the form of text completions: four lists in step, one place a token.

The likeliest tokens stand by their text, and the chosen one always among them. A token whose bytes are no characters by
themselves is written as OpenAI writes it, `bytes:\xe2\x82`; where two tokens have the same text, the less likely one
stands as `token_id:7`, so that none is lost.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gateway.openai.chunks import listed
from smg.pipelines.logprobs import number_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smg.pipelines.logprobs import TokenRows


class LegacyLists(NamedTuple):
    """The insides of the four lists for some tokens, as JSON. The first token of a prompt has null twice."""

    tokens: bytes
    token_logprobs: bytes
    top_logprobs: bytes
    text_offset: bytes


def legacy_lists(rows: TokenRows) -> LegacyLists:
    """The lists of some tokens."""
    names = rows.tokenizer.table(_name)
    chosen: list[float] = []
    numbers: list[float] = []
    likely: list[list[int] | None] = []
    for token, row, _ in rows.entries:
        if not row.HasField("logprob"):
            likely.append(None)
            continue
        number = row.logprob
        # A slice is a list, and costs half of list().
        tops, values = row.top_token[:], row.top_logprob[:]
        if len(tops) != len(values):
            del tops[len(values) :], values[len(tops) :]
        if token not in tops:
            tops.append(token)
            values.append(number)
        chosen.append(number)
        numbers += values
        likely.append(tops)
    told = iter(number_texts(chosen))
    return LegacyLists(
        _joined([names[entry.token] for entry in rows.entries]),
        _joined(["null" if tops is None else next(told) for tops in likely]),
        _joined(_tops(likely, number_texts(numbers), names)),
        _joined([str(entry.offset) for entry in rows.entries]),
    )


def legacy_json(lists: Sequence[LegacyLists]) -> list[bytes]:
    """The logprobs object of a choice, or of a chunk, in parts that stand next to each other."""
    parts: list[bytes] = []
    for place, name in enumerate(LegacyLists._fields):
        parts.append(b'%b"%b":[' % (b"]," if place else b"{", name.encode()))
        parts += listed([each[place] for each in lists])
    parts.append(b"]}")
    return parts


def _joined(texts: list[str]) -> bytes:
    return ",".join(texts).encode()


def _tops(likely: Iterable[list[int] | None], numbers: list[str], names: dict[int, str]) -> list[str]:
    """An object for each token: number by name."""
    told: list[str] = []
    at = 0
    for tops in likely:
        if tops is None:
            told.append("null")
            continue
        keys = [f"{names[token]}:" for token in tops]
        if len(set(keys)) < len(keys):
            keys = _distinct(tops, keys)
        told.append("{" + ",".join(map(add, keys, numbers[at : at + len(keys)])) + "}")
        at += len(keys)
    return told


def _distinct(tops: list[int], keys: list[str]) -> list[str]:
    """The keys, those that were there before replaced by the token's number."""
    return [
        f'"token_id:{token}":' if key in keys[:place] else key
        for place, (token, key) in enumerate(zip(tops, keys, strict=True))
    ]


def _name(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    # Only what may be no text is looked at again.
    if "\ufffd" in text and text.encode() != data:
        text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
    return orjson.dumps(text).decode()
