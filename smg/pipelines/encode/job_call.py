"""Has one input embedded or classified: places it, and tries again elsewhere while that makes sense."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import EngineError, SmgError, UnusableScores, WorkerUnavailable
from smg.pipelines.answer import may_succeed_elsewhere
from smg.policies.base import RouteRequest
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.pipelines.engine_call import RetryOptions
    from smg.policies.base import Policy
    from smg.types.context import RequestContext
    from smg.workers.base import Worker
    from smg.workers.registry import WorkerRegistry

    Work = work_pb2.Embed | work_pb2.Classify
    Result = work_pb2.Scored | work_pb2.Embedded | work_pb2.Classified

FAILED = "start_embedding_failed"


class Encoded(NamedTuple):
    """What a worker made of one input.

    Attributes:
        values: the vector, or the logits.
        tokens: that it counted.
        worker_url: who.
    """

    values: list[float]
    tokens: int
    worker_url: str


class _Result:
    """Listens for one answer."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def on_result(self, result: Result) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def on_failed(self, error: SmgError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class JobCall:
    """Places inputs on workers, each by itself: those of one request are spread."""

    def __init__(
        self, registry: WorkerRegistry, policy: Policy, retries: RetryOptions, on_retry: Callable[[str], None]
    ) -> None:
        """Args: as for EngineCall."""
        self._registry = registry
        self._policy = policy
        self._retries = retries
        self._on_retry = on_retry

    async def run(self, route: str, work: Work, context: RequestContext) -> Encoded:
        """Compute one input. Cancelling the caller aborts it.

        Args:
            route: name of the route, for metrics.
            work: the input, with the model's id.
            context: who asks.

        Raises:
            SmgError: the worker refused, or no worker is left to try.
        """
        # No prompt is told: what is embedded is in no cache, and is not to push out what is.
        asked = RouteRequest(
            work.model,
            routing_key=context.routing_key,
            target_worker=context.target_worker,
            text_length=len(work.input_ids),
            caller=context.caller.tenant,
        )
        excluded: frozenset[str] = frozenset()
        attempt = 0
        while True:
            attempt += 1
            worker = self._place(asked, excluded)
            try:
                return await _computed(worker, work)
            except SmgError as error:
                if attempt >= self._retries.max_attempts or not may_succeed_elsewhere(error):
                    raise _named(error) from error
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


async def _computed(worker: Worker, work: Work) -> Encoded:
    result = _Result()
    submit = worker.embed if isinstance(work, work_pb2.Embed) else worker.classify
    sequence = submit(work, result)  # pyright: ignore[reportArgumentType] - of the kind that was looked at
    try:
        found = await result.future
    except asyncio.CancelledError:
        worker.abort(sequence)
        raise
    values = found.values if isinstance(found, work_pb2.Embedded) else _logits(found)
    if not math.isfinite(sum(values)):
        raise UnusableScores("the engine's numbers for an input are not finite")
    return Encoded(list(values), found.prompt_tokens, worker.url)


def _logits(found: Result) -> list[float]:
    assert isinstance(found, work_pb2.Classified)  # noqa: S101 - that is what was asked for
    return list(found.logits)


def _named(error: SmgError) -> SmgError:
    """An engine's refusal under the word that clients of embeddings know."""
    if isinstance(error, EngineError) and error.code == EngineError.default_code:
        error.code = FAILED
    return error
