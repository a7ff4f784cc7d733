"""Turns SGLang's log-probabilities into rows of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2


def output_rows(
    source: sglang_pb2.OutputLogProbs, asked_ids: Sequence[int], *, wants_chosen: bool
) -> list[work_pb2.TokenLogprobs]:
    """Log-probabilities of output tokens, one entry per position."""
    chosen, top, asked = source.token_logprobs, source.top_logprobs, source.token_ids_logprobs
    rows: list[work_pb2.TokenLogprobs] = []
    for position in range(max(len(chosen), len(asked))):
        row = work_pb2.TokenLogprobs()
        if wants_chosen and position < len(chosen):
            row.logprob = chosen[position]
        if wants_chosen and position < len(top):
            row.top_token.extend(top[position].token_ids)
            row.top_logprob.extend(top[position].values)
        if asked_ids and position < len(asked):
            by_id = dict(zip(asked[position].token_ids, asked[position].values, strict=True))
            row.asked_logprob.extend(by_id[token] for token in asked_ids)
        rows.append(row)
    return rows


def prompt_rows(
    source: sglang_pb2.InputLogProbs, prompt_start: int, prompt_tokens: int
) -> list[work_pb2.TokenLogprobs]:
    """Log-probabilities of the prompt's tokens from `prompt_start` on.

    SGLang was asked to start one position early, because it gives no number for the first; position 0 has none. What
    lies behind the prompt is output of another engine, which SGLang was sent as prompt.
    """
    rows: list[work_pb2.TokenLogprobs] = []
    top = source.top_logprobs
    for position, entry in enumerate(source.token_logprobs):
        if position == 0 and prompt_start > 0:
            continue
        row = work_pb2.TokenLogprobs()
        if entry.HasField("value"):
            row.logprob = entry.value
            if position < len(top):
                row.top_token.extend(top[position].token_ids)
                row.top_logprob.extend(top[position].values)
        rows.append(row)
    return rows[: max(0, prompt_tokens - prompt_start)]
