"""Places an answer on a worker, submits its sequences, and waits for its end: the only place that retries.

A failure is tried again elsewhere when the engine or the network is at fault: before the first event from the
beginning, after it from the last token on. The client sees no gap and no repetition, and is told only when nobody is
left to go on. What an engine refused (a 4xx) is never tried again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import DeadlineExceeded, InvalidRequest, SmgError, WorkerUnavailable
from smg.pipelines.plan import Group
from smg.pipelines.retry_budget import RetryBudget
from smg.pipelines.turns import Turns
from smg.policies.base import RouteRequest
from smg.policies.hints import lineage_key, parse_routing_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.pipelines.answer import Answer
    from smg.pipelines.choice import Choice
    from smg.policies.base import Pick, Policy
    from smg.types.context import RequestContext
    from smg.workers.base import Worker
    from smg.workers.registry import WorkerRegistry


logger = logging.getLogger(__name__)


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
        try:
            pause = min(self.initial_backoff_s * self.multiplier ** (failed_attempts - 1), self.max_backoff_s)
        except OverflowError:
            # Many attempts, or a large multiplier.
            pause = self.max_backoff_s if self.initial_backoff_s else 0.0
        return pause * (1 + self.jitter * random.uniform(-1, 1))  # noqa: S311 - spreads load, guards nothing


class Work(NamedTuple):
    """What one request asks of an engine.

    Attributes:
        route: name of the route that it arrived on, for metrics.
        model: id of the model, not an alias.
        arrived_at: loop time of the request's arrival.
        prompt_ids: the prompt that decides the placement.
        build: makes the messages and the listeners of one attempt, in step; fresh ones each time.
        constraint: kind of the form that the output must have; empty for none.
        tokenizer: fingerprint of the tokenizer that made the prompt; empty when it is not known.
        rid: the request's own name for itself; empty for none.
        modalities: kinds of media in the prompt.
    """

    route: str
    model: str
    arrived_at: float
    prompt_ids: bytes
    build: Callable[[], list[Group]]
    constraint: str = ""
    tokenizer: str = ""
    rid: str = ""
    modalities: tuple[str, ...] = ()


async def _attempt(worker: Worker, answer: Answer, groups: list[Group]) -> None:
    """Run what is not complete of an answer on a worker, to the end of the answer."""
    choices = _choices(groups)
    unended = len(choices)
    if answer.is_open:
        unended = sum(not choice.has_ended for choice in choices)
        groups = _resumed(groups)
        choices = _choices(groups)
    answer.start(worker, choices, unended)
    try:
        for group in groups:
            _submit(worker, group)
        await answer.done
    finally:
        answer.abort()


def _submit(worker: Worker, group: Group) -> None:
    sequences = worker.generate_choices(group.requests, group.choices)
    for choice, sequence in zip(group.choices, sequences, strict=True):
        choice.sequence = sequence


def _choices(groups: list[Group]) -> list[Choice]:
    return [choice for group in groups for choice in group.choices]


def _abandon(groups: list[Group]) -> None:
    """Nothing more of these is written."""
    for choice in _choices(groups):
        choice.is_abandoned = True


def _resumed(groups: list[Group]) -> list[Group]:
    """What is not complete, to be gone on with."""
    rest: list[Group] = []
    for group in groups:
        unended = [
            pair for pair in zip(*group, strict=True) if not (pair[1].has_ended or pair[1].is_complete)
        ]
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
        *,
        pins_by_rid: bool = False,
        budget: RetryBudget | None = None,
    ) -> None:
        """Prepare.

        Args:
            registry: the workers.
            policy: picks one.
            retries: how often and how fast.
            timeout_s: bounds one request from its arrival, retries included.
            on_retry: told of every further attempt.
            budget: bounds the retries of all requests together; None for one that does not.
            pins_by_rid: a request's `rid` is its routing key, before those in headers.
        """
        self._pins_by_rid = pins_by_rid
        self._budget = budget or RetryBudget(0.0)
        self._registry = registry
        self._policy = policy
        self._retries = retries
        self._timeout_s = timeout_s
        self._on_retry = on_retry
        # All answers take turns with each other: many long ones hold up the event loop no longer than one.
        self._turns = Turns()
        self._running: set[Answer] = set()

    async def run(self, work: Work, answer: Answer, context: RequestContext) -> None:
        """Run an answer to its end. Cancelling the caller aborts its sequences.

        Raises:
            SmgError: the answer failed before it was opened. Later failures go to its sink.
        """
        answer.turns = self._turns
        self._running.add(answer)
        self._budget.began()
        late_at = work.arrived_at + self._timeout_s
        deadline = asyncio.get_running_loop().call_at(late_at, self._time_out, answer)
        try:
            await self._run(work, answer, context)
        except SmgError as error:
            if not answer.is_open:
                raise
            answer.fail(error)
        finally:
            deadline.cancel()
            self._running.discard(answer)

    def stop_all(self, error: SmgError) -> None:
        """End every answer that runs, with an error; engines are told."""
        for answer in tuple(self._running):
            answer.stop(error)

    def _time_out(self, answer: Answer) -> None:
        answer.stop(DeadlineExceeded(f"the request took longer than {self._timeout_s:g} s"))

    async def _run(self, work: Work, answer: Answer, context: RequestContext) -> None:
        route = RouteRequest(
            work.model,
            work.prompt_ids,
            (self._pins_by_rid and lineage_key(work.rid)) or context.routing_key,
            context.target_worker,
            # Where the prompt's own ids are known, as they are for workers on gRPC, a hint could only be worse.
            b"" if work.prompt_ids else parse_routing_tokens(context.routing_tokens),
            caller=context.caller.tenant,
        )
        unfit = self._unfit(work)
        excluded = unfit
        groups: list[Group] = []
        try:
            for attempt in range(1, self._retries.max_attempts + 1):
                if not answer.is_open:
                    _abandon(groups)
                    groups = work.build()
                worker: Worker | None = None
                try:
                    worker = self._place(work, route, excluded, unfit, self._explanation(context, attempt))
                    await _attempt(worker, answer, groups)
                except SmgError as error:
                    # That nobody is there is told at once, but to a client that has the beginning of its answer.
                    is_refused = not answer.can_retry(error) or (worker is None and not answer.is_open)
                    if is_refused or attempt == self._retries.max_attempts:
                        raise
                    if not answer.is_open and not self._budget.take(len(self._running)):
                        raise
                else:
                    return
                if worker is not None:
                    excluded |= {worker.id}
                self._on_retry(work.route)
                await answer.pause(self._retries.pause_s(attempt))
        except BaseException:
            _abandon(groups)
            raise

    def _place(
        self,
        work: Work,
        route: RouteRequest,
        excluded: frozenset[str],
        unfit: frozenset[str],
        on_pick: Callable[[Pick], None] | None,
    ) -> Worker:
        model, tokenizer = work.model, work.tokenizer
        try:
            return self._registry.place(model, self._policy, route, excluded, tokenizer, on_pick)
        except WorkerUnavailable:
            if excluded == unfit:
                raise
        # Every other worker has failed as well: the first one may be back.
        return self._registry.place(model, self._policy, route, unfit, tokenizer, on_pick)

    def _explanation(self, context: RequestContext, attempt: int) -> Callable[[Pick], None] | None:
        """Who is told why a worker is picked: the caller that asked, and the log while it takes such detail."""
        note = context.note
        if note is None and not logger.isEnabledFor(logging.DEBUG):
            return None

        def tell(pick: Pick) -> None:
            if note is not None:
                note.worker_url, note.reason = pick.worker.url, pick.reason
            fields = {
                "request_id": context.request_id,
                "worker": pick.worker.url,
                "reason": pick.reason,
                "attempt": attempt,
            }
            logger.log(logging.DEBUG if note is None else logging.INFO, "placed", extra=fields)

        return tell

    def _unfit(self, work: Work) -> frozenset[str]:
        """Workers that would not hold the output to its form, or do not take the media of the prompt.

        Raises:
            InvalidRequest: no worker of the model would.
        """
        blind = self._blind(work) if work.modalities else frozenset[str]()
        if not work.constraint:
            return blind
        kinds = self._registry.constraints(work.model)
        unfit = frozenset(worker for worker, enforced in kinds.items() if work.constraint not in enforced)
        if kinds and len(unfit) == len(kinds):
            enforced = ", ".join(sorted({kind for each in kinds.values() for kind in each})) or "none"
            raise InvalidRequest(
                f"a constraint of kind {work.constraint} cannot be enforced by the workers of {work.model}; "
                f"kinds that they enforce: {enforced}",
                code="constraint_not_supported",
            )
        return unfit | blind

    def _blind(self, work: Work) -> frozenset[str]:
        """Workers that do not take some medium of the prompt."""
        taken = self._registry.modalities(work.model)
        wanted = frozenset(work.modalities)
        blind = frozenset(worker for worker, modalities in taken.items() if not wanted.issubset(modalities))
        if taken and len(blind) == len(taken):
            raise InvalidRequest(
                f"no worker of {work.model} takes {', '.join(sorted(wanted))} now",
                code="multimodal_not_supported",
            )
        return blind
