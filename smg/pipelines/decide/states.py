"""The states of one request, each by itself and a few at a time, within the time that the request has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import DeadlineExceeded, SmgError
from smg_proto.decision.v1 import answer_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from smg.settings import DecisionSettings
    from smg_proto.decision.v1 import decision_pb2, question_pb2


class Answered(NamedTuple):
    """One state's answers, and the worker's address."""

    answers: answer_pb2.StateAnswers
    worker_url: str


async def answer_states(
    request: decision_pb2.DecideRequest,
    settings: DecisionSettings,
    answer: Callable[[question_pb2.State, bool], Awaitable[Answered]],
) -> list[Answered]:
    """Answers and worker per state. With a deadline of the request's own, what is late fails alone.

    Args:
        request: with its states.
        settings: of time, and of how many at a time.
        answer: answers one state; told whether it is one of a batch.

    Raises:
        DeadlineExceeded: no deadline was asked for, and it took too long.
        SmgError: the only state, or every one, failed.
    """
    options = request.options
    own_ms = options.deadline_ms if options.HasField("deadline_ms") else None
    limit_s = _limit_s(options, settings)
    if len(request.states) > 1 or request.states[0].name:
        return await _batch(request, settings.decision_concurrent_states, limit_s, own_ms, answer)
    state = request.states[0]
    try:
        async with asyncio.timeout(limit_s):
            return [await answer(state, False)]
    except TimeoutError:
        if own_ms is None:
            raise _out_of_time(limit_s) from None
        return [_too_late(state, own_ms)]


def _limit_s(options: decision_pb2.DecideOptions, settings: DecisionSettings) -> float:
    if options.HasField("deadline_ms"):
        return options.deadline_ms / 1000
    if options.long_context:
        return settings.decision_max_deadline_secs
    return settings.decision_timeout_secs


async def _batch(
    request: decision_pb2.DecideRequest,
    at_a_time: int,
    limit_s: float,
    own_ms: int | None,
    answer: Callable[[question_pb2.State, bool], Awaitable[Answered]],
) -> list[Answered]:
    places = asyncio.Semaphore(at_a_time)
    faults: list[SmgError] = []

    async def one(state: question_pb2.State) -> Answered:
        async with places:
            try:
                return await answer(state, True)
            except SmgError as error:
                faults.append(error)
                return _broken(state, error)

    tasks = [asyncio.create_task(one(state)) for state in request.states]
    try:
        _, late = await asyncio.wait(tasks, timeout=limit_s)
    finally:
        await _stopped(tasks)
    if len(faults) == len(tasks):
        raise faults[0]
    if late and own_ms is None:
        raise _out_of_time(limit_s)
    return [
        _too_late(state, own_ms or 0) if task.cancelled() else task.result()
        for state, task in zip(request.states, tasks, strict=True)
    ]


def _out_of_time(limit_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the questions took more than {limit_s:g} s; options.deadline_ms may allow more",
        code="systemone_deadline_exceeded",
    )


def _too_late(state: question_pb2.State, deadline_ms: int) -> Answered:
    said = f"no answer within options.deadline_ms, {deadline_ms}"
    return _all_failed(state, answer_pb2.QuestionFailure(error="deadline_exceeded", message=said))


def _broken(state: question_pb2.State, error: SmgError) -> Answered:
    """The answers about one state of a batch whose worker refused or failed it."""
    kind = "invalid_input" if error.status < 500 and not error.is_retryable else "unavailable"
    return _all_failed(state, answer_pb2.QuestionFailure(error=kind, message=error.message))


def _all_failed(state: question_pb2.State, failure: answer_pb2.QuestionFailure) -> Answered:
    found = [
        answer_pb2.Answer(id=question.id, type=question.type, failure=failure) for question in state.questions
    ]
    return Answered(answer_pb2.StateAnswers(name=state.name, answers=found), "")


async def _stopped(tasks: Collection[asyncio.Task[Answered]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
