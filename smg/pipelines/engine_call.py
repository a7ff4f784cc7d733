"""Places an answer on a worker, submits its sequences, and waits for its end: the only place that retries.

A failure before the first event is tried again elsewhere when the engine or the network is at fault; after it the
client is told. What an engine refused (a 4xx) is never tried again.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import SmgError, WorkerUnavailable
from smg.pipelines.answer import Answer
from smg.policies.base import RouteRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.pipelines.plan import Group
    from smg.policies.base import Policy
    from smg.types.context import RequestContext
    from smg.workers.base import Worker
    from smg.workers.registry import WorkerRegistry


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """How often and how fast a request is tried again before its first token.

    Attributes:
        max_attempts: tries in all, at least 1.
        initial_backoff_s: pause before the second try.
        max_backoff_s: longest pause.
        multiplier: from one pause to the next.
        jitter: share of the pause that is random, 0 to 1.
    """

    max_attempts: int = 5
    initial_backoff_s: float = 0.05
    max_backoff_s: float = 30.0
    multiplier: float = 1.5
    jitter: float = 0.2

    def pause_s(self, failed_attempts: int) -> float:
        """Seconds to wait after so many failed tries."""
        pause = min(self.initial_backoff_s * self.multiplier ** (failed_attempts - 1), self.max_backoff_s)
        return pause * (1 + self.jitter * random.uniform(-1, 1))  # noqa: S311 - spreads load, guards nothing


class Work(NamedTuple):
    """What one request asks of an engine.

    Attributes:
        route: name of the route that it arrived on, for metrics.
        model: id of the model, not an alias.
        prompt_ids: the prompt that decides the placement.
        build: makes the messages and the listeners of one attempt, in step; fresh ones each time.
    """

    route: str
    model: str
    prompt_ids: bytes
    build: Callable[[], list[Group]]


def _submit(worker: Worker, group: Group) -> None:
    sequences = worker.generate_choices(group.requests, group.choices)
    for choice, sequence in zip(group.choices, sequences, strict=True):
        choice.sequence = sequence


class EngineCall:
    """Runs answers on workers."""

    def __init__(
        self,
        registry: WorkerRegistry,
        policy: Policy,
        retries: RetryOptions,
        timeout_s: float,
        on_retry: Callable[[str], None],
    ) -> None:
        """Args: timeout_s bounds one request, retries included; on_retry is told of every further attempt."""
        self._registry = registry
        self._policy = policy
        self._retries = retries
        self._timeout_s = timeout_s
        self._on_retry = on_retry

    async def run(self, work: Work, answer: Answer, context: RequestContext) -> None:
        """Run an answer to its end. Cancelling the caller aborts its sequences.

        Raises:
            SmgError: the answer failed before it was opened. Later failures go to its sink.
        """
        deadline = asyncio.get_running_loop().call_later(self._timeout_s, answer.time_out, self._timeout_s)
        try:
            await self._run(work, answer, context)
        except SmgError as error:
            if not answer.is_open:
                raise
            answer.fail(error)
        finally:
            deadline.cancel()

    async def _run(self, work: Work, answer: Answer, context: RequestContext) -> None:
        route = RouteRequest(model=work.model, prompt_ids=work.prompt_ids, routing_key=context.routing_key)
        excluded: frozenset[str] = frozenset()
        for attempt in range(1, self._retries.max_attempts + 1):
            worker = self._place(work.model, route, excluded)
            groups = work.build()
            answer.start(worker, [choice for group in groups for choice in group.choices])
            try:
                for group in groups:
                    _submit(worker, group)
                await answer.done
            except SmgError as error:
                is_last = attempt == self._retries.max_attempts
                if is_last or answer.is_open or not Answer.can_retry(error):
                    raise
                excluded |= {worker.id}
            else:
                return
            finally:
                answer.abort()
            self._on_retry(work.route)
            await asyncio.sleep(self._retries.pause_s(attempt))

    def _place(self, model: str, route: RouteRequest, excluded: frozenset[str]) -> Worker:
        try:
            return self._registry.place(model, self._policy, route, excluded)
        except WorkerUnavailable:
            if not excluded:
                raise
        # Every other worker has failed as well: the first one may be back.
        return self._registry.place(model, self._policy, route, frozenset())
