"""Has one state's questions scored by a worker, and tries again elsewhere when the worker is at fault."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import SmgError, WorkerUnavailable
from smg.pipelines.answer import may_succeed_elsewhere
from smg.pipelines.retry_budget import RetryBudget
from smg.policies.base import RouteRequest
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.pipelines.engine_call import RetryOptions
    from smg.policies.base import Policy
    from smg.types.context import RequestContext
    from smg.workers.base import Worker
    from smg.workers.registry import WorkerRegistry

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


class _Result:
    """Listens for one score."""

    def __init__(self) -> None:
        self.future: asyncio.Future[work_pb2.Scored] = asyncio.get_running_loop().create_future()

    def on_result(self, result: work_pb2.Scored | work_pb2.Embedded | work_pb2.Classified) -> None:
        if not self.future.done():
            assert isinstance(result, work_pb2.Scored)  # noqa: S101 - that is what was asked for
            self.future.set_result(result)

    def on_failed(self, error: SmgError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class ScoreCall:
    """Places scores on workers."""

    def __init__(
        self,
        registry: WorkerRegistry,
        policy: Policy,
        retries: RetryOptions,
        on_retry: Callable[[str], None],
        *,
        budget: RetryBudget | None = None,
    ) -> None:
        """Args: as for EngineCall."""
        self._registry = registry
        self._policy = policy
        self._retries = retries
        self._on_retry = on_retry
        self._budget = budget or RetryBudget(0.0)

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
        excluded: frozenset[str] = frozenset()
        attempt = 0
        self._budget.began()
        while True:
            attempt += 1
            worker = self._place(asked, excluded)
            try:
                return await _scored(worker, score)
            except SmgError as error:
                if attempt >= self._retries.max_attempts or not may_succeed_elsewhere(error):
                    raise
                if not self._budget.take(0):
                    raise
            excluded |= {worker.id}
            self._on_retry(route)
            await asyncio.sleep(self._retries.pause_s(attempt))

    def _place(self, asked: RouteRequest, excluded: frozenset[str]) -> Worker:
        try:
            return self._registry.place(asked.model, self._policy, asked, excluded)
        except WorkerUnavailable:
            if not excluded:
                raise
        # Every other worker has failed as well: the first one may be back.
        return self._registry.place(asked.model, self._policy, asked)


async def _scored(worker: Worker, score: work_pb2.Score) -> StateScores:
    results: list[_Result] = []
    sequences: list[int] = []
    try:
        for piece in _pieces(score):
            result = _Result()
            sequences.append(worker.score(piece, result))
            results.append(result)
        scored = await _all([result.future for result in results])
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


async def _all(futures: Sequence[asyncio.Future[work_pb2.Scored]]) -> list[work_pb2.Scored]:
    if len(futures) == 1:
        return [await futures[0]]
    return await asyncio.gather(*futures)


def _hear(future: asyncio.Future[work_pb2.Scored]) -> None:
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
