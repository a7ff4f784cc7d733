"""JSON pieces that chat and text completions share: usage, log-probabilities, matched stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.sinks import UsageCounter
    from smg_proto.common.v1 import common_pb2


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


def chat_logprobs(entries: Sequence[common_pb2.TokenLogprob]) -> dict[str, Any] | None:
    """The logprobs object of a chat choice; None where none were asked for."""
    if not entries:
        return None
    return {"content": [_entry(entry) for entry in entries], "refusal": None}


def _entry(entry: common_pb2.TokenLogprob) -> dict[str, Any]:
    return {
        "token": entry.token,
        "logprob": entry.logprob,
        "bytes": list(entry.bytes),
        "top_logprobs": [
            {"token": top.token, "logprob": top.logprob, "bytes": list(top.bytes)}
            for top in entry.top_logprobs
        ],
    }
