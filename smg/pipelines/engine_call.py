"""Places an answer on a worker, submits its sequences, and waits for its end: the only place that retries.

A failure is tried again elsewhere when the engine or the network is at fault: before the first event from the
beginning, after it from the last token on. The client sees no gap and no repetition, and is told only when nobody is
left to go on. What an engine refused (a 4xx) is never tried again.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import InvalidRequest, SmgError, WorkerUnavailable
from smg.pipelines.answer import Answer
from smg.pipelines.plan import Group
from smg.pipelines.turns import Turns
from smg.policies.base import RouteRequest

if TYPE_CHECKING:
    from collections.abc import Callable

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
        constraint: kind of the form that the output must have; empty for none.
        tokenizer: fingerprint of the tokenizer that made the prompt; empty when it is not known.
    """

    route: str
    model: str
    prompt_ids: bytes
    build: Callable[[], list[Group]]
    constraint: str = ""
    tokenizer: str = ""


def _submit(worker: Worker, group: Group) -> None:
    sequences = worker.generate_choices(group.requests, group.choices)
    for choice, sequence in zip(group.choices, sequences, strict=True):
        choice.sequence = sequence


def _can_resume(groups: list[Group]) -> bool:
    return all(choice.has_ended or choice.can_resume for group in groups for choice in group.choices)


def _resumed(groups: list[Group]) -> list[Group]:
    """What has not ended, to be gone on with."""
    rest: list[Group] = []
    for group in groups:
        unended = [pair for pair in zip(*group, strict=True) if not pair[1].has_ended]
        for request, choice in unended:
            choice.resume(request)
        if unended:
            rest.append(Group([request for request, _ in unended], [choice for _, choice in unended]))
    return rest


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
        # All answers take turns with each other: many long ones hold up the event loop no longer than one.
        self._turns = Turns()

    async def run(self, work: Work, answer: Answer, context: RequestContext) -> None:
        """Run an answer to its end. Cancelling the caller aborts its sequences.

        Raises:
            SmgError: the answer failed before it was opened. Later failures go to its sink.
        """
        answer.turns = self._turns
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
        route = RouteRequest(
            work.model,
            work.prompt_ids,
            context.routing_key,
            context.target_worker,
            caller=context.caller.tenant,
        )
        unfit = self._unfit(work)
        excluded = unfit
        groups: list[Group] = []
        for attempt in range(1, self._retries.max_attempts + 1):
            worker = self._place(work, route, excluded, unfit)
            groups = _resumed(groups) if answer.is_open else work.build()
            answer.start(worker, [choice for group in groups for choice in group.choices])
            try:
                for group in groups:
                    _submit(worker, group)
                await answer.done
            except SmgError as error:
                is_last = attempt == self._retries.max_attempts
                if is_last or not Answer.can_retry(error) or (answer.is_open and not _can_resume(groups)):
                    raise
                excluded |= {worker.id}
            else:
                return
            finally:
                answer.abort()
            self._on_retry(work.route)
            await asyncio.sleep(self._retries.pause_s(attempt))

    def _place(
        self, work: Work, route: RouteRequest, excluded: frozenset[str], unfit: frozenset[str]
    ) -> Worker:
        model, tokenizer = work.model, work.tokenizer
        try:
            return self._registry.place(model, self._policy, route, excluded, tokenizer)
        except WorkerUnavailable:
            if excluded == unfit:
                raise
        # Every other worker has failed as well: the first one may be back.
        return self._registry.place(model, self._policy, route, unfit, tokenizer)

    def _unfit(self, work: Work) -> frozenset[str]:
        """Workers that would not hold the output to its form.

        Raises:
            InvalidRequest: no worker of the model would.
        """
        if not work.constraint:
            return frozenset()
        kinds = self._registry.constraints(work.model)
        unfit = frozenset(worker for worker, enforced in kinds.items() if work.constraint not in enforced)
        if kinds and len(unfit) == len(kinds):
            enforced = ", ".join(sorted({kind for each in kinds.values() for kind in each})) or "none"
            raise InvalidRequest(
                f"a constraint of kind {work.constraint} cannot be enforced by the workers of {work.model}; "
                f"kinds that they enforce: {enforced}",
                code="constraint_not_supported",
            )
        return unfit
