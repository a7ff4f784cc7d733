"""Scores labels, embeds and classifies on a server that knows neither prefixes nor classes.

The first question is asked alone: it fills the prefix cache, which the others, asked together, then share.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from smg.errors import INTERNAL, EngineError, UnusableScores
from smg.workers.sglang.requests import (
    classify_to_sglang,
    embed_to_sglang,
    score_label_to_sglang,
    score_to_sglang,
)
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

    from smg.workers.sglang.client import SglangClient


async def score(
    client: SglangClient, request: work_pb2.Score, request_id: str, parallel: int
) -> work_pb2.Scored:
    """Score every suffix. Raises EngineError; the first failure ends the rest."""
    limit = asyncio.Semaphore(parallel)
    scorer = _Scorer(client, request, request_id, limit)
    first, *others = request.suffixes
    rows = [await scorer.suffix(first)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scorer.suffix(other)) for other in others]
    except* EngineError as failures:
        raise _first(failures) from failures
    rows += [task.result() for task in tasks]
    ids = sum(len(suffix.ids) for suffix in request.suffixes)
    return work_pb2.Scored(
        sequence=request.sequence,
        suffixes=rows,
        prompt_tokens=(len(request.prefix_ids) + ids) // 4,
        cached_tokens=rows[0].cached_tokens,
    )


async def embed(client: SglangClient, request: work_pb2.Embed, request_id: str) -> work_pb2.Embedded:
    """Embed one input. The vector is as the server scales it; one that is cut is brought to length 1."""
    answer = await client.embed(embed_to_sglang(request, request_id))
    values = list(answer.embedding)
    if not values:
        raise EngineError("the engine returned an empty embedding", engine_code=INTERNAL)
    if request.HasField("dimensions") and request.dimensions < len(values):
        values = values[: request.dimensions]
        length = math.sqrt(math.fsum(value * value for value in values))
        values = [value / length for value in values] if length else values
    return work_pb2.Embedded(sequence=request.sequence, values=values, prompt_tokens=answer.prompt_tokens)


async def classify(
    client: SglangClient, request: work_pb2.Classify, request_id: str, labels: int
) -> work_pb2.Classified:
    """Classify one input. The protocol has no method for that: a classifier's embedding is its logits."""
    answer = await client.embed(classify_to_sglang(request, request_id))
    if len(answer.embedding) != labels:
        raise EngineError(
            f"the engine returned {len(answer.embedding)} logits for {labels} labels", engine_code=INTERNAL
        )
    return work_pb2.Classified(
        sequence=request.sequence, logits=answer.embedding, prompt_tokens=answer.prompt_tokens
    )


class _Scorer:
    """The questions of one score request."""

    def __init__(
        self, client: SglangClient, request: work_pb2.Score, request_id: str, limit: asyncio.Semaphore
    ) -> None:
        self._client = client
        self._request = request
        self._request_id = request_id
        self._limit = limit
        self._asked = 0

    async def suffix(self, suffix: work_pb2.ScoreSuffix) -> work_pb2.SuffixScores:
        """Score one suffix: its single ids in one question, each label of several tokens in its own."""
        ids = self._request.prefix_ids + suffix.ids
        scores = work_pb2.SuffixScores()
        if suffix.label_ids:
            labels = list(suffix.label_ids)
            answer = await self._ask(score_to_sglang(ids, labels, self._request, self._next_id()))
            scores.logprobs.extend(_label_logprobs(answer, labels))
            scores.cached_tokens = answer.cached_tokens
        for label in suffix.label_sequences:
            answer = await self._ask(score_label_to_sglang(ids, label, self._request, self._next_id()))
            scores.sequence_logprobs.append(_mean_logprob(answer, len(label) // 4))
            scores.cached_tokens = scores.cached_tokens or answer.cached_tokens
        return scores

    async def _ask(self, request: sglang_pb2.GenerateRequest) -> sglang_pb2.GenerateComplete:
        async with self._limit:
            answer = await self._client.prefill(request)
        if answer.finish_reason in ("abort", "error"):
            raise UnusableScores(f"the engine ended a question with the reason {answer.finish_reason!r}")
        return answer

    def _next_id(self) -> str:
        self._asked += 1
        return f"{self._request_id}-{self._asked}"


def _label_logprobs(answer: sglang_pb2.GenerateComplete, labels: list[int]) -> list[float]:
    rows = answer.output_logprobs.token_ids_logprobs
    if not rows:
        raise UnusableScores("the engine returned no log-probabilities of the labels")
    by_id = dict(zip(rows[0].token_ids, rows[0].values, strict=False))
    missing = [label for label in labels if label not in by_id]
    if missing:
        raise UnusableScores(f"the engine returned no log-probability of label id {missing[0]}")
    return [by_id[label] for label in labels]


def _mean_logprob(answer: sglang_pb2.GenerateComplete, tokens: int) -> float:
    entries = answer.input_logprobs.token_logprobs[-tokens:] if tokens else []
    values = [entry.value for entry in entries if entry.HasField("value")]
    if not values or len(values) != tokens:
        raise UnusableScores(
            f"the engine returned {len(values)} log-probabilities for a label of {tokens} tokens"
        )
    return math.fsum(values) / tokens


def _first(group: BaseExceptionGroup[EngineError]) -> EngineError:
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError
