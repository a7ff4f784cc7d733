"""Has one input embedded or classified by a worker."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import EngineError, SmgError, UnusableScores
from smg.pipelines.placed_job import FutureResult
from smg.policies.base import RouteRequest
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from smg.pipelines.placed_job import PlacedJobs, Result
    from smg.types.context import RequestContext
    from smg.workers.base import Worker

    Work = work_pb2.Embed | work_pb2.Classify

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


class JobCall:
    """Places inputs on workers, each by itself: those of one request are spread."""

    def __init__(self, jobs: PlacedJobs) -> None:
        self._jobs = jobs

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
        try:
            return await self._jobs.run(route, asked, lambda worker: _computed(worker, work))
        except SmgError as error:
            raise _named(error) from error


async def _computed(worker: Worker, work: Work) -> Encoded:
    result = FutureResult()
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
