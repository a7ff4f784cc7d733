"""Turns an engine's log-probabilities into those that clients see: ids become text and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg_proto.common.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.prompt.tokenizer import Tokenizer
    from smg_proto.engine.v1 import work_pb2

# JSON has no infinity: what an engine reports as impossible, or as no number, is shown as this, as OpenAI does.
LOWEST_LOGPROB = -9999.0


def token_logprobs(
    tokenizer: Tokenizer, ids: Sequence[int], logprobs: Sequence[work_pb2.TokenLogprobs]
) -> list[common_pb2.TokenLogprob]:
    """One entry per token, in order.

    Args:
        tokenizer: gives the text and bytes of an id.
        ids: the tokens.
        logprobs: as many, or fewer when the engine reported none for the last ones.
    """
    return [_entry(tokenizer, token, entry) for token, entry in zip(ids, logprobs, strict=False)]


def _entry(tokenizer: Tokenizer, token: int, entry: work_pb2.TokenLogprobs) -> common_pb2.TokenLogprob:
    # Field by field: a message made with arguments, and copied into a list of others, costs twice as much.
    answer = common_pb2.TokenLogprob()
    answer.token = tokenizer.token_text(token)
    answer.bytes = tokenizer.token_bytes(token)
    answer.token_id = token
    if entry.HasField("logprob"):
        answer.logprob = _finite(entry.logprob)
    for top, logprob in zip(entry.top_token, entry.top_logprob, strict=False):
        candidate = answer.top_logprobs.add()
        candidate.token = tokenizer.token_text(top)
        candidate.bytes = tokenizer.token_bytes(top)
        candidate.token_id = top
        candidate.logprob = _finite(logprob)
    return answer


def _finite(logprob: float) -> float:
    # In this order: every comparison with NaN is false, and max keeps its first argument then.
    return max(LOWEST_LOGPROB, logprob)
