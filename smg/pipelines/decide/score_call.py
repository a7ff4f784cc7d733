"""Has one state's questions scored by a worker, all by the same one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from smg.pipelines.placed_job import FutureResult
from smg.policies.base import RouteRequest
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.placed_job import PlacedJobs, Result
    from smg.types.context import RequestContext
    from smg.workers.base import Worker

# Suffixes of one message. The contract takes 1024; smaller pieces let others have their turn at the engine.
MAX_SUFFIXES = 512


class StateScores(NamedTuple):
    """What a worker made of one state's questions.

    Attributes:
        rows: one entry per suffix, in order.
        compute_s: seconds of computing, as far as the engine tells.
        worker_url: who.
    """

    rows: list[work_pb2.SuffixScores]
    compute_s: float
    worker_url: str


class ScoreCall:
    """Places scores on workers."""

    def __init__(self, jobs: PlacedJobs) -> None:
        self._jobs = jobs

    async def run(self, route: str, score: work_pb2.Score, context: RequestContext) -> StateScores:
        """Score all suffixes of a state, on one worker. Cancelling the caller aborts the work.

        Args:
            route: name of the route, for metrics.
            score: prefix, any number of suffixes, and the model.
            context: who asks.

        Raises:
            SmgError: the worker refused, or no worker is left to try.
        """
        asked = RouteRequest(
            score.model,
            score.prefix_ids,
            context.routing_key,
            context.target_worker,
            caller=context.caller.tenant,
        )
        return await self._jobs.run(route, asked, lambda worker: _scored(worker, score))


async def _scored(worker: Worker, score: work_pb2.Score) -> StateScores:
    results: list[FutureResult] = []
    sequences: list[int] = []
    try:
        for piece in _pieces(score):
            result = FutureResult()
            sequences.append(worker.score(piece, result))
            results.append(result)
        scored = [_scores(each) for each in await _all([result.future for result in results])]
    except BaseException:
        for sequence, result in zip(sequences, results, strict=False):
            # One that has its answer is not known to the worker any more.
            worker.abort(sequence)
            _hear(result.future)
        raise
    return StateScores(
        [row for each in scored for row in each.suffixes],
        sum(each.compute_seconds for each in scored),
        worker.url,
    )


def _scores(result: Result) -> work_pb2.Scored:
    assert isinstance(result, work_pb2.Scored)  # noqa: S101 - that is what was asked for
    return result


async def _all(futures: Sequence[asyncio.Future[Result]]) -> list[Result]:
    if len(futures) == 1:
        return [await futures[0]]
    return await asyncio.gather(*futures)


def _hear(future: asyncio.Future[Result]) -> None:
    """Take note of a failure that nobody waits for."""
    if future.done() and not future.cancelled():
        future.exception()


def _pieces(score: work_pb2.Score) -> list[work_pb2.Score]:
    if len(score.suffixes) <= MAX_SUFFIXES:
        return [score]
    return [
        work_pb2.Score(
            prefix_ids=score.prefix_ids,
            suffixes=score.suffixes[start : start + MAX_SUFFIXES],
            model=score.model,
            request_id=score.request_id,
            traceparent=score.traceparent,
            tracestate=score.tracestate,
        )
        for start in range(0, len(score.suffixes), MAX_SUFFIXES)
    ]
