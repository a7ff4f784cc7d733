"""Runs the requests that take a coroutine: scores of several questions, embeddings, classifications."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.errors import InternalError, SmgError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from smg.workers.base import ResultListener
    from smg_proto.engine.v1 import work_pb2

    _Result = work_pb2.Scored | work_pb2.Embedded | work_pb2.Classified
    _Work = Callable[[], Coroutine[None, None, _Result]]

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Job:
    task: asyncio.Task[None]
    listener: ResultListener


class Jobs:
    """The jobs of one worker. Each ends with one call of its listener, unless it was cancelled."""

    def __init__(
        self, on_change: Callable[[], None], on_outcome: Callable[[SmgError | None], None] = lambda _: None
    ) -> None:
        """Args: on_change is called when a job starts or ends; on_outcome is told how (Worker.on_outcome)."""
        self._on_change = on_change
        self._on_outcome = on_outcome
        self._jobs: dict[int, _Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def start(self, sequence: int, work: _Work, listener: ResultListener) -> None:
        """Start a job."""
        task = asyncio.create_task(self._run(sequence, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._jobs[sequence] = _Job(task, listener)
        self._on_change()

    def cancel(self, sequence: int) -> bool:
        """Stop a job; its listener hears nothing. Returns False for one that does not run."""
        job = self._jobs.pop(sequence, None)
        if job is None:
            return False
        job.task.cancel()
        self._on_change()
        return True

    def fail_all(self, error: SmgError) -> None:
        """Stop every job, and tell its listener."""
        while self._jobs:
            _, job = self._jobs.popitem()
            job.task.cancel()
            _tell_failure(job.listener, error)

    async def wait_ended(self) -> None:
        """Wait until no task is left of jobs that were stopped."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, sequence: int, work: _Work) -> None:
        outcome: _Result | SmgError
        try:
            outcome = await work()
        except SmgError as error:
            outcome = error
        except Exception as fault:  # noqa: BLE001 - whatever broke, the listener must hear of it
            _log.exception("a job broke")
            outcome = InternalError(f"the worker's answer could not be read: {fault}")
        job = self._jobs.pop(sequence, None)
        if job is None:
            return
        self._on_change()
        if isinstance(outcome, SmgError):
            self._on_outcome(outcome)
            _tell_failure(job.listener, outcome)
            return
        self._on_outcome(None)
        try:
            job.listener.on_result(outcome)
        except Exception as fault:  # noqa: BLE001 - a listener must not end the worker
            _log.exception("the listener of a job raised")
            _tell_failure(job.listener, InternalError(f"the answer could not be written: {fault}"))


def _tell_failure(listener: ResultListener, error: SmgError) -> None:
    try:
        listener.on_failed(error)
    except Exception:  # noqa: BLE001 - a listener must not end the worker
        _log.exception("a listener raised when told of a failure")
