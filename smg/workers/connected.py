"""The life of a connection, whatever protocol it speaks: open, watched, lost, opened again.

A protocol's worker says how to open and serve a connection; when it ends, everything that it carried is told, once,
here.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from typing import TYPE_CHECKING

from smg.errors import UNAVAILABLE, EngineError, WorkerUnavailable
from smg.workers.address import parse_url
from smg.workers.backoff import Backoff
from smg.workers.base import Worker
from smg.workers.ending import end_all
from smg.workers.failures import lost_error
from smg.workers.health import HealthGate, WedgeWatch
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from smg.errors import SmgError
    from smg.workers.options import WorkerOptions

# Looks per wedge_s: the verdict is late by at most one part of it.
_WEDGE_LOOKS = 4

# Pause between checks of a worker that is not well: it is wanted back.
_SICK_INTERVAL_S = 1.0
# And of one that has not been well since it was connected: most likely it is about to be.
_STARTING_INTERVAL_S = 0.25

# A connection that lasted so long was a success: the next loss starts with the shortest pause again.
_LASTING_S = 5.0

_log = logging.getLogger(__name__)


class ConnectionLost(Exception):
    """The connection has ended, or could not be opened; the text says why."""


class ConnectedWorker(Worker):
    """A worker that keeps one connection open. See Worker for what the public methods promise."""

    def __init__(self, worker_id: str, url: str, options: WorkerOptions) -> None:
        super().__init__(worker_id, url)
        self._address = parse_url(url)
        self._options = options
        self._is_open = False
        self._why_closed = "not connected yet"
        # Set when the server has said that it will close the connection: running work may end on it.
        self._why_leaving = ""
        self._description: card_pb2.DescribeResponse | None = None
        self._load = card_pb2.Load()
        self._health, self._wedge = self._fresh_watches()
        self._seen: object = None
        self._backoff = Backoff(options)

    @property
    def is_ready(self) -> bool:
        """Connection open and to stay, health good, steps being made."""
        is_fit = self._health.is_healthy and not self._wedge.is_wedged
        return self._is_open and is_fit and not self._why_leaving

    @property
    def is_connected(self) -> bool:
        """The connection is open."""
        return self._is_open

    @property
    def is_stalled(self) -> bool:
        """No step for too long."""
        return self._wedge.is_wedged

    @property
    def reason(self) -> str:
        """The first thing that is wrong."""
        if not self._is_open:
            return self._why_closed
        if self._why_leaving:
            return self._why_leaving
        if self._wedge.is_wedged:
            return f"no step for {self._options.wedge_s:g} s while sequences ran"
        return self._health.reason

    @property
    def description(self) -> card_pb2.DescribeResponse | None:
        """As of the last connection."""
        return self._description

    @property
    def load(self) -> card_pb2.Load:
        """As last heard."""
        return self._load

    async def run(self) -> None:
        """Serve connections, one after the other, until cancelled."""
        backoff = self._backoff
        now = asyncio.get_running_loop().time
        try:
            while True:
                started_at = now()
                try:
                    await self._serve_once()
                except ConnectionLost as lost:
                    self._lost(str(lost))
                if now() - started_at > _LASTING_S:
                    backoff.reset()
                await backoff.pause()
        finally:
            self._lost("the router closed the connection", is_wanted=True)
            await self._end_tasks()

    def hurry(self) -> None:
        """Do not wait long before the next try."""
        self._backoff.hurry()

    @abc.abstractmethod
    async def _serve_once(self) -> None:
        """Open a connection, call _opened, and serve it to its end; close it in any case.

        Raises:
            ConnectionLost: always, unless cancelled.
            ProtocolMismatch: another kind of server answers.
        """

    @abc.abstractmethod
    async def _ask_health(self) -> str:
        """What is wrong with the worker's health in words; empty when nothing is."""

    async def _ask_load(self) -> card_pb2.Load | None:
        """The engine's load of now; None where the health check itself shows progress. Raises EngineError."""
        return None

    @abc.abstractmethod
    def _progress_seen(self) -> int:
        """A number that changes with every step that the engine is seen to make."""

    @abc.abstractmethod
    def _sequences_running(self) -> int:
        """Sequences that should be making progress."""

    @abc.abstractmethod
    def _give_up(self, error: SmgError) -> None:
        """Tell every listener, and try to make the engine stop its sequences if it still hears."""

    def _fail_lost(self, error: SmgError) -> None:
        """Tell the listeners of what went with a connection. All of them, unless a protocol knows better."""
        self._give_up(error)

    async def _end_tasks(self) -> None:
        """Wait for tasks of the worker's own, all cancelled by now. There are none unless a protocol has some."""

    async def _serve_together(self, *parts: Coroutine[None, None, None]) -> None:
        """Run the parts of a connection, and the watches, until the first of them loses it.

        No TaskGroup: until Python 3.13 it drops a cancellation that arrives while it ends its tasks, and the worker
        would be connected again for ever while the one who cancelled it waits for its end.
        """
        tasks = [asyncio.ensure_future(part) for part in (*parts, self._watch_health(), self._watch_steps())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            faults = [fault for task in tasks if task.done() and (fault := task.exception()) is not None]
        finally:
            await end_all(tasks)
        # The first to notice is enough: the others lost the same connection. A fault of ours is not to be taken for that.
        raise next((fault for fault in faults if not isinstance(fault, ConnectionLost)), faults[0])

    async def _check_health(self) -> None:
        """Take one look; the first one after a connection is opened too."""
        self._health.record(await self._ask_health() if self._options.is_health_checked else "")
        self._notify()

    async def _watch_health(self) -> None:
        while True:
            interval_s = self._options.health_interval_s
            if not self._health.is_healthy or self._wedge.is_wedged:
                sick_s = _SICK_INTERVAL_S if self._health.was_healthy else _STARTING_INTERVAL_S
                interval_s = min(interval_s, sick_s)
            await asyncio.sleep(interval_s)
            if self._options.is_health_checked:
                await self._check_health()
            if self._wedge.is_wedged:
                await self._check_wedge()

    async def _check_wedge(self) -> None:
        """No work is sent to a wedged engine, so that it may have no steps to show: ask it."""
        try:
            load = await self._ask_load()
        except EngineError as error:
            _log.debug("load of worker %s: %s", self.url, error.message)
            return
        now = asyncio.get_running_loop().time()
        if load is not None and self._wedge.answered(now, load.steps, load.running + load.waiting):
            self._notify()

    async def _watch_steps(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            if self._wedge.observe(now(), self._progress_seen(), self._sequences_running()):
                if self._wedge.is_wedged:
                    _log.warning("worker %s: %s; its work goes on elsewhere", self.url, self.reason)
                    self._give_up(lost_error())
                    self.on_load_change()
                self._notify()
            await asyncio.sleep(self._options.wedge_s / _WEDGE_LOOKS)

    def _opened(self, description: card_pb2.DescribeResponse) -> None:
        known = self._description
        has_restarted = known is not None and known.instance_id != description.instance_id
        _log.info("worker %s is connected%s", self.url, " after a restart" if has_restarted else "")
        self._description = description
        self._why_leaving = ""
        self._is_open = True
        self.connections += 1
        self._notify()

    def _described(self, description: card_pb2.DescribeResponse) -> None:
        """The engine's description has changed while it is connected."""
        self._description = description
        self._notify()

    def _lost(self, why: str, *, is_wanted: bool = False) -> None:
        """The connection is gone, and what it carried is lost with it."""
        if why != self._why_closed:
            level = logging.INFO if is_wanted else logging.WARNING
            _log.log(level, "worker %s is not connected: %s", self.url, why)
        self._is_open = False
        self._why_closed = why
        self._load = card_pb2.Load()
        self._health, self._wedge = self._fresh_watches()
        self._notify()
        error = lost_error()
        if is_wanted:
            self._give_up(error)
        else:
            self._fail_lost(error)
        self.on_load_change()

    def _fresh_watches(self) -> tuple[HealthGate, WedgeWatch]:
        options = self._options
        return HealthGate(options.health_failures, options.health_successes), WedgeWatch(options.wedge_s)

    def _notify(self) -> None:
        """Tell the registry if something has changed that it looks at."""
        seen = (self.is_ready, self.reason, self._description)
        if seen != self._seen:
            self._seen = seen
            self.on_state_change()

    def _outcome(self, error: SmgError | None) -> None:
        # The registry sets its hook after this worker was made.
        self.on_outcome(error)

    def _refuse_unless_open(self) -> None:
        """Raise WorkerUnavailable unless work can be submitted."""
        if not self._is_open:
            raise WorkerUnavailable("the worker is not connected")

    def _not_connected(self) -> EngineError:
        return EngineError("the worker is not connected", engine_code=UNAVAILABLE, can_retry=True)
