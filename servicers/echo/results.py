"""Answers to Score, Embed and Classify: pure functions of their token ids."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from zlib import crc32

from servicers.echo.distribution import context_key, context_key_of
from servicers.echo.model import EMBEDDING_LAYERS, EMBEDDING_SIZE, LABELS
from servicers.echo.prefix_cache import prompt_blocks
from servicers.echo.rows import told_logprobs
from servicers.token_bytes import ID_BYTES, ids_from_bytes
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from servicers.echo.directives import Failure
    from servicers.echo.distribution import Distribution
    from servicers.echo.planner import Planner
    from servicers.echo.prefix_cache import PrefixCache

# Knuth's multiplicative hash, to spread neighbouring ids.
_MIX = 2654435761
# Keeps every number of an embedding away from zero, so that any cut of it can be normalized.
_FLOOR = 0.05


class Refused(Exception):
    """A directive wants the work to fail."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def scored(
    request: work_pb2.Score, planner: Planner, distribution: Distribution, cache: PrefixCache
) -> work_pb2.Scored:
    """Score every suffix.

    Raises:
        Refused: a directive wants it.
        DirectiveFault: a directive cannot be obeyed.
    """
    answer = work_pb2.Scored(sequence=request.sequence)
    prefix_key = context_key(request.prefix_ids)
    for suffix in request.suffixes:
        plan = planner.script(request.prefix_ids + suffix.ids, 0).plan
        if plan.failure is not None:
            raise Refused(plan.failure)
        scores = answer.suffixes.add()
        key = context_key(suffix.ids, prefix_key)
        if plan.label_logprobs:
            scores.logprobs.extend(told_logprobs(plan, len(suffix.label_ids)))
        elif plan.gives_rows:
            scores.logprobs.extend(map(distribution.row(key).logprob, suffix.label_ids))
        scores.sequence_logprobs.extend(
            _mean_logprob(label, key, distribution) for label in suffix.label_sequences
        )
    blocks = prompt_blocks(request.prefix_ids, request.model)
    answer.cached_tokens = cache.cached_tokens(blocks)
    cache.add(blocks)
    for number, scores in enumerate(answer.suffixes):
        scores.cached_tokens = len(request.prefix_ids) // ID_BYTES if number else answer.cached_tokens
    tokens = len(request.prefix_ids) + sum(len(suffix.ids) for suffix in request.suffixes)
    answer.prompt_tokens = tokens // ID_BYTES
    return answer


def embedded(request: work_pb2.Embed, planner: Planner) -> work_pb2.Embedded:
    """Embed an input: counts of its tokens in buckets, so that texts with common tokens are near each other.

    Raises:
        Refused: a directive wants it.
        DirectiveFault: a directive cannot be obeyed.
    """
    _refuse_if_told(request.input_ids, planner)
    values = [_FLOOR] * EMBEDDING_SIZE
    ids = ids_from_bytes(request.input_ids)
    # Each layer has its own buckets, the last those of a request that names none.
    shift = EMBEDDING_LAYERS[-1] - request.layer if request.HasField("layer") else 0
    for token in ids:
        values[((token * _MIX >> 16) + shift) % EMBEDDING_SIZE] += 1
    if request.HasField("dimensions"):
        del values[request.dimensions :]
    length = math.hypot(*values)
    return work_pb2.Embedded(
        sequence=request.sequence, values=[each / length for each in values], prompt_tokens=len(ids)
    )


def classified(request: work_pb2.Classify, planner: Planner) -> work_pb2.Classified:
    """Classify an input: logits from -2 to 2 out of a hash of it.

    Raises:
        Refused: a directive wants it.
        DirectiveFault: a directive cannot be obeyed.
    """
    _refuse_if_told(request.input_ids, planner)
    key = context_key(request.input_ids)
    logits = [crc32(label.encode(), key) / 2**32 * 4 - 2 for label in LABELS]
    return work_pb2.Classified(
        sequence=request.sequence, logits=logits, prompt_tokens=len(request.input_ids) // ID_BYTES
    )


def _refuse_if_told(input_ids: bytes, planner: Planner) -> None:
    failure = planner.script(input_ids, 0).plan.failure
    if failure is not None:
        raise Refused(failure)


def _mean_logprob(label: bytes, key: int, distribution: Distribution) -> float:
    total = 0.0
    tokens = ids_from_bytes(label)
    for token in tokens:
        total += distribution.row(key).logprob(token)
        key = context_key_of((token,), key)
    return total / len(tokens)
