"""POST /v1/bundle: several requests in one, for any models, each answered as it would be alone, in their order."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from gateway.decisions.body import read_body, refuse_other_type
from gateway.decisions.failures import failure_body
from gateway.decisions.timing import Phases
from gateway.encode.handlers import JSON, Answered, send
from gateway.encode.members import HIGHEST
from gateway.errors import error_answer
from gateway.openai.explain import shown
from smg.decisions.json_text import json_bytes
from smg.errors import DeadlineExceeded, InternalError, SmgError
from smg.validation.encode import MAX_DEADLINE_MS, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.decisions.handlers import DecisionHandlers
    from gateway.encode.handlers import EncodeHandlers
    from gateway.reply import Header, Reply
    from gateway.request import HttpRequest
    from smg.pipelines.meter import Meters

SURFACES = ("classify", "decisions", "embeddings", "rerank")
MAX_ID_CHARS = 256


class Task(NamedTuple):
    """One task.

    Attributes:
        id: the client's name for it.
        surface: of SURFACES.
        body: as the path of that surface takes it.
    """

    id: str
    surface: str
    body: dict[str, Any]


class _Outcome(NamedTuple):
    """How a task ended."""

    status: int
    body: bytes


class BundleHandler:
    """The handler and what it needs."""

    def __init__(
        self, encode: EncodeHandlers, decide: DecisionHandlers, meters: Meters, max_tasks: int
    ) -> None:
        self._encode = encode
        self._decide = decide
        self._meters = meters
        self._max_tasks = max_tasks
        self._answers = {"classify": encode.classify, "embeddings": encode.embed, "rerank": encode.rerank}

    async def bundle(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/bundle."""
        phases = Phases()
        try:
            body = await read_body(request, self._encode.max_body_bytes)
            refuse_other_type(body)
            tasks, deadline_s = read_bundle(body.members, self._max_tasks)
        except SmgError as error:
            status, headers, data = error_answer(error)
            send(request, reply, status, headers, data, phases)
            return
        phases.parsed()
        outcomes = await self._outcomes(request, tasks, deadline_s)
        began = time.perf_counter()
        results = [
            {"id": task.id, "status": outcome.status, "body": orjson.Fragment(outcome.body)}
            for task, outcome in zip(tasks, outcomes, strict=True)
        ]
        data = orjson.dumps({"results": results})
        phases.serialized(began)
        headers: list[Header] = [JSON]
        send(request, reply, 200, headers, data, phases)

    async def _outcomes(
        self, request: HttpRequest, tasks: Sequence[Task], deadline_s: float | None
    ) -> list[_Outcome]:
        running = [asyncio.create_task(self._outcome(request, task)) for task in tasks]
        try:
            await asyncio.wait(running, timeout=deadline_s)
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return [_late(deadline_s) if each.cancelled() else each.result() for each in running]

    async def _outcome(self, request: HttpRequest, task: Task) -> _Outcome:
        try:
            answered = await self._answered(request, task)
        except SmgError as error:
            if task.surface == "decisions":
                status, body = failure_body(error)
                return _Outcome(status, orjson.dumps(body))
            status, _, data = error_answer(error)
            return _Outcome(status, data or b"null")
        return _Outcome(200, answered.body)

    async def _answered(self, request: HttpRequest, task: Task) -> Answered:
        answer = self._answers.get(task.surface)
        if answer is not None:
            meter = self._meters.start(task.surface, request.context, request.arrived_at)
            return await answer(task.body, request.context, meter, Phases())
        written, worker_url = await self._decide.answer_state(request, task.body)
        return Answered(json_bytes(written), worker_url)


def read_bundle(members: dict[str, Any], max_tasks: int) -> tuple[list[Task], float | None]:
    """The tasks of a body, and the time that they have in seconds; None for their own.

    Raises:
        InvalidRequest: it is not a bundle.
    """
    unknown = next((name for name in members if name not in ("tasks", "options")), None)
    if unknown is not None:
        raise refused(f"a bundle does not take {unknown[:60]!r}; it takes tasks, options", unknown[:60])
    given = members.get("tasks")
    if not isinstance(given, list) or not given:
        raise refused(f"tasks is {shown(given)}; it must be a list of at least one task", "tasks")
    entries = cast("list[Any]", given)
    if len(entries) > max_tasks:
        raise refused(f"tasks has {len(entries)} entries; at most {max_tasks} are allowed", "tasks")
    tasks = [_task(entry, number) for number, entry in enumerate(entries)]
    seen: set[str] = set()
    for number, task in enumerate(tasks):
        if task.id in seen:
            raise refused(
                f"tasks[{number}].id is {task.id[:60]!r}, which another task has", f"tasks[{number}].id"
            )
        seen.add(task.id)
    return tasks, _deadline_s(members.get("options"))


def _task(entry: Any, number: int) -> Task:
    name = f"tasks[{number}]"
    if not isinstance(entry, dict):
        raise refused(f"{name} is {shown(entry)}; it must be an object", name)
    members = cast("dict[str, Any]", entry)
    task_id = members.get("id")
    if not isinstance(task_id, str) or not 1 <= len(task_id) <= MAX_ID_CHARS:
        raise refused(
            f"{name}.id is {shown(task_id)}; it must be a text of 1 to {MAX_ID_CHARS} characters",
            f"{name}.id",
        )
    surfaces = [each for each in members if each != "id"]
    if len(surfaces) != 1 or surfaces[0] not in SURFACES:
        has = ", ".join(each[:40] for each in surfaces[:10]) or "none"
        raise refused(f"{name} has {has}; it must have one of {', '.join(SURFACES)}", name)
    body = members[surfaces[0]]
    if not isinstance(body, dict):
        raise refused(f"{name}.{surfaces[0]} is {shown(body)}; it must be an object", f"{name}.{surfaces[0]}")
    return Task(task_id, surfaces[0], cast("dict[str, Any]", body))


def _deadline_s(options: Any) -> float | None:
    if options is None:
        return None
    if not isinstance(options, dict):
        raise refused(f"options is {shown(options)}; it must be an object", "options")
    members = cast("dict[str, Any]", options)
    unknown = next((name for name in members if name != "deadline_ms"), None)
    if unknown is not None:
        raise refused(f"options has {unknown[:60]!r}; allowed: deadline_ms", f"options.{unknown[:60]}")
    value = members.get("deadline_ms")
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not 1 <= value <= min(MAX_DEADLINE_MS, HIGHEST)
    ):
        raise refused(
            f"options.deadline_ms is {shown(value)}; it must be a whole number from 1 to {MAX_DEADLINE_MS}",
            "options.deadline_ms",
        )
    return value / 1000


def _late(deadline_s: float | None) -> _Outcome:
    if deadline_s is None:
        # Nothing but a fault of ours cancels a task.
        status, _, data = error_answer(InternalError("the task was cancelled"))
        return _Outcome(status, data)
    error = DeadlineExceeded(f"no answer within options.deadline_ms, {deadline_s * 1000:.0f}")
    status, _, data = error_answer(error)
    return _Outcome(status, data)
