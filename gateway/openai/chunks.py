"""JSON pieces that chat and text completions share: usage, log-probabilities, matched stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from smg.pipelines.logprobs import number_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.logprobs import TokenRows
    from smg.pipelines.sinks import UsageCounter


def usage_json(usage: UsageCounter) -> dict[str, Any]:
    """The usage object. Speculative counters appear only when the engine drafts."""
    details: dict[str, int] = {"reasoning_tokens": usage.reasoning_tokens}
    if usage.draft_tokens:
        details["accepted_prediction_tokens"] = usage.accepted_tokens
        details["rejected_prediction_tokens"] = max(0, usage.draft_tokens - usage.accepted_tokens)
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": details,
    }


def chat_entries(rows: TokenRows) -> bytes:
    """The entries of some tokens, as the inside of a JSON list."""
    heads, tails = rows.tokenizer.table(_head), rows.tokenizer.table(_tail)
    numbers: list[float] = []
    likely: list[list[int]] = []
    for _, row, _ in rows.entries:
        # A slice is a list, and costs half of list().
        tops, values = row.top_token[:], row.top_logprob[:]
        if len(tops) != len(values):
            del tops[len(values) :], values[len(tops) :]
        likely.append(tops)
        numbers.append(row.logprob)
        numbers += values
    texts = number_texts(numbers)
    told: list[str] = []
    at = 0
    for entry, tops in zip(rows.entries, likely, strict=True):
        token, end = entry.token, at + 1 + len(tops)
        candidates = [
            f"{heads[top]}{number}{tails[top]}}}"
            for top, number in zip(tops, texts[at + 1 : end], strict=True)
        ]
        told.append(f'{heads[token]}{texts[at]}{tails[token]},"top_logprobs":[{",".join(candidates)}]}}')
        at = end
    return ",".join(told).encode()


def chat_json(entries: Sequence[bytes]) -> list[bytes]:
    """The logprobs object of a chat choice, in parts that stand next to each other."""
    return [b'{"content":[', *listed(entries), b'],"refusal":null}']


def listed(parts: Sequence[bytes]) -> list[bytes]:
    """The parts with commas between them."""
    with_commas = [b","] * (2 * len(parts) - 1) if parts else []
    with_commas[::2] = parts
    return with_commas


def _head(data: bytes) -> str:
    """An entry up to its number."""
    return f'{{"token":{orjson.dumps(data.decode("utf-8", "replace")).decode()},"logprob":'


def _tail(data: bytes) -> str:
    """What follows the number; the entry is still open."""
    return f',"bytes":[{",".join(map(str, data))}]'
