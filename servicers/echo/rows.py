"""Log-probability rows of the contract, out of the distribution and the plan. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicers.echo.distribution import context_key, context_key_of
from servicers.token_bytes import ID_BYTES, ids_from_bytes
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servicers.echo.directives import Plan
    from servicers.echo.distribution import Distribution, Row

# What an id gets that `lp` has no number for.
_UNLISTED = -20.0


def token_logprobs(
    row: Row, token: int, options: work_pb2.LogprobsOptions, plan: Plan, is_first: bool
) -> work_pb2.TokenLogprobs:
    """The entry of one output token."""
    entry = work_pb2.TokenLogprobs(logprob=row.logprob(token))
    if options.top_k:
        entry.top_token.extend(row.top(options.top_k))
        entry.top_logprob.extend(map(row.logprob, entry.top_token))
    if options.token_ids and plan.gives_rows:
        if plan.label_logprobs and is_first:
            entry.asked_logprob.extend(told_logprobs(plan, len(options.token_ids)))
        else:
            entry.asked_logprob.extend(map(row.logprob, options.token_ids))
    return entry


def told_logprobs(plan: Plan, count: int) -> list[float]:
    """The numbers of the directive `lp`, for so many ids."""
    told = plan.label_logprobs
    return [told[index] if index < len(told) else _UNLISTED for index in range(count)]


def prompt_rows(request: work_pb2.Generate, distribution: Distribution) -> Iterator[work_pb2.TokenLogprobs]:
    """The entries of the prompt's tokens from prompt_start on. The first token of a prompt has none."""
    start, count = request.logprobs.prompt_start, request.logprobs.top_k
    if start == 0:
        yield work_pb2.TokenLogprobs()
    first = max(start, 1)
    key = context_key(request.prompt_ids[: first * ID_BYTES])
    for token in ids_from_bytes(request.prompt_ids[first * ID_BYTES :]):
        row = distribution.row(key)
        key = context_key_of((token,), key)
        top = row.top(count)
        yield work_pb2.TokenLogprobs(
            logprob=row.logprob(token), top_token=top, top_logprob=map(row.logprob, top)
        )
