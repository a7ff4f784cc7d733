"""Has a worker do something that is answered whole: places it, and tries again elsewhere while that makes sense."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from smg.errors import SmgError, WorkerUnavailable
from smg.pipelines.answer import may_succeed_elsewhere
from smg.pipelines.retry_budget import RetryBudget

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from smg.pipelines.engine_call import RetryOptions
    from smg.policies.base import Policy, RouteRequest
    from smg.workers.base import Worker
    from smg.workers.registry import WorkerRegistry
    from smg_proto.engine.v1 import work_pb2

    Result = work_pb2.Scored | work_pb2.Embedded | work_pb2.Classified

T = TypeVar("T")


class FutureResult:
    """Listens for one answer. Attributes: future: gets the answer, or what went wrong."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def on_result(self, result: Result) -> None:
        """The answer."""
        if not self.future.done():
            self.future.set_result(result)

    def on_failed(self, error: SmgError) -> None:
        """There will be none."""
        if not self.future.done():
            self.future.set_exception(error)


class PlacedJobs:
    """Places jobs on workers."""

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

    async def run(self, route: str, asked: RouteRequest, job: Callable[[Worker], Awaitable[T]]) -> T:
        """Do a job on one worker after the other, until one succeeds.

        Args:
            route: name of the route, for metrics.
            asked: for which model, and what the policy goes by.
            job: does it on a worker.

        Raises:
            SmgError: a worker refused, or no worker is left to try.
        """
        excluded: frozenset[str] = frozenset()
        attempt = 0
        self._budget.began()
        while True:
            attempt += 1
            worker = self._place(asked, excluded)
            try:
                return await job(worker)
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
