r"""Writes log-probabilities in the form of text completions: four lists in step, one place a token.

The likeliest tokens stand by their text, and the chosen one always among them. A token whose bytes are no characters by
themselves is written as OpenAI writes it, `bytes:\xe2\x82`; where two tokens have the same text, the less likely one
stands as `token_id:7`, so that none is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg_proto.common.v1 import common_pb2


def legacy_logprobs(entries: Sequence[common_pb2.TokenLogprob]) -> dict[str, list[Any]]:
    """The logprobs object of a choice, or of a chunk. The first token of a prompt has none: null twice."""
    return {
        "tokens": [_text(entry) for entry in entries],
        "token_logprobs": [_logprob(entry) for entry in entries],
        "top_logprobs": [_top(entry) for entry in entries],
        "text_offset": [entry.text_offset for entry in entries],
    }


def _text(token: common_pb2.TokenLogprob | common_pb2.TopLogprob) -> str:
    text = token.token
    # Only what may be no text is decoded again.
    if "\ufffd" in text and text.encode() != token.bytes:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.bytes)
    return text


def _logprob(entry: common_pb2.TokenLogprob) -> float | None:
    return entry.logprob if entry.HasField("logprob") else None


def _top(entry: common_pb2.TokenLogprob) -> dict[str, float] | None:
    if not entry.HasField("logprob"):
        return None
    top: dict[str, float] = {}
    is_chosen_among = False
    for candidate in entry.top_logprobs:
        is_chosen_among = is_chosen_among or candidate.token_id == entry.token_id
        _add(top, candidate)
    if not is_chosen_among:
        _add(top, entry)
    return top


def _add(top: dict[str, float], token: common_pb2.TokenLogprob | common_pb2.TopLogprob) -> None:
    text = _text(token)
    top[text if text not in top else f"token_id:{token.token_id}"] = token.logprob
