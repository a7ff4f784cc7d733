"""Turns an engine's log-probabilities into those that clients see: ids become text and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg_proto.common.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.prompt.tokenizer import Tokenizer
    from smg_proto.engine.v1 import work_pb2

# JSON has no infinity: what an engine reports as impossible is shown as this, as OpenAI does.
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
    answer = common_pb2.TokenLogprob(
        token=tokenizer.token_text(token),
        bytes=tokenizer.token_bytes(token),
        token_id=token,
        top_logprobs=[
            common_pb2.TopLogprob(
                token=tokenizer.token_text(top),
                bytes=tokenizer.token_bytes(top),
                token_id=top,
                logprob=max(logprob, LOWEST_LOGPROB),
            )
            for top, logprob in zip(entry.top_token, entry.top_logprob, strict=False)
        ],
    )
    if entry.HasField("logprob"):
        answer.logprob = max(entry.logprob, LOWEST_LOGPROB)
    return answer
