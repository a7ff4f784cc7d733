"""Keeps registered workers connected, each with a task of its own, and tells what becomes of them.

Here live the breakers' and drains' timers, too: one a worker, as a worker that is to go needs no breaker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from smg.errors import Unsupported
from smg.workers.backoff import Backoff
from smg.workers.base import ProtocolMismatch, Worker
from smg.workers.breaker import BreakerState, is_own_fault
from smg.workers.options import WorkerOptions
from smg.workers.probe import ProbeFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smg.errors import SmgError
    from smg.workers.registered import RegisteredWorker
    from smg_proto.engine.v1 import card_pb2

    CacheWatcher = Callable[[RegisteredWorker, Iterable[card_pb2.CacheEvent]], None]

OpenWorker = Callable[[str, str, WorkerOptions], Awaitable[Worker]]

# Pause before an address is looked at again where a server was found that is not served.
_UNSERVED_S = 30.0

_log = logging.getLogger(__name__)


class Keeper:
    """The tasks and timers of all workers. Everything happens on the event loop."""

    def __init__(
        self,
        options: WorkerOptions,
        open_worker: OpenWorker,
        on_change: Callable[[RegisteredWorker], None],
        on_load: Callable[[RegisteredWorker], None],
        on_drained: Callable[[RegisteredWorker], None],
    ) -> None:
        """Take whom to call.

        Args:
            options: how workers are connected to.
            open_worker: finds out an address's protocol.
            on_change: a worker's state, models or breaker have changed.
            on_load: a worker's load has changed; happens with every step.
            on_drained: a worker that is to go has ended its work, or had its time.
        """
        self._options = options
        self._open_worker = open_worker
        self._on_change = on_change
        self._on_load = on_load
        self._on_drained = on_drained
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        # Hears of the prefix caches of engines that tell of them; set before the start.
        self.cache_watcher: CacheWatcher | None = None

    def start(self, entry: RegisteredWorker) -> None:
        """Begin to connect to a worker."""
        self._backoffs[entry.id] = Backoff(self._options)
        self._tasks[entry.id] = asyncio.create_task(self._keep(entry), name=f"{entry.id} {entry.url}")

    def stop(self, entry: RegisteredWorker) -> None:
        """Close its connection. What runs on it is lost to it."""
        self._clear_timer(entry)
        if entry.worker is not None:
            # What is cut now is no fault of the worker's, and its breaker is of no use any more.
            entry.worker.on_outcome = lambda _: None
        self._backoffs.pop(entry.id, None)
        task = self._tasks.pop(entry.id, None)
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()

    def hurry(self, entry: RegisteredWorker) -> None:
        """Requests find no worker, and this one is not connected: try it again soon."""
        backoff = self._backoffs.get(entry.id)
        if backoff is not None:
            backoff.hurry()
        if entry.worker is not None:
            entry.worker.hurry()

    async def wait_ended(self) -> None:
        """Wait until what was stopped is closed."""
        if self._ending:
            await asyncio.wait(self._ending)

    def drop_later(self, entry: RegisteredWorker) -> None:
        """A worker is to go: tell of it as drained at the latest when its time is over."""
        self._set_timer(entry, self._options.drain_s, self._drained_too_long)

    def keep(self, entry: RegisteredWorker) -> None:
        """A worker that was to go is to stay."""
        self._watch_breaker(entry)

    async def _keep(self, entry: RegisteredWorker) -> None:
        """Keep one worker connected until it is stopped.

        Not only until cancelled: a connection that breaks at that very moment may end with its own error instead.
        """
        backoff, task = self._backoffs[entry.id], asyncio.current_task()
        while True:
            is_served = await self._serve(entry, backoff)
            if self._tasks.get(entry.id) is not task:
                return
            if is_served:
                await backoff.pause()
            else:
                # Another server may take its place.
                await asyncio.sleep(_UNSERVED_S)

    async def _serve(self, entry: RegisteredWorker, backoff: Backoff) -> bool:
        """Connect to a worker, for as long as it goes well. Returns False where a server was found that is not served."""
        try:
            worker = entry.worker
            if worker is None:
                worker = await self._open_worker(entry.id, entry.url, self._options)
                self._attach(entry, worker)
                backoff.reset()
            await worker.run()
        except Unsupported as refusal:
            self._detach(entry, refusal.message)
            return False
        except (ProbeFailed, ProtocolMismatch) as fault:
            self._detach(entry, str(fault))
        except Exception:  # noqa: BLE001 - a fault of ours in one connection must not end it for ever
            _log.exception("worker %s: the connection broke down; it is opened again", entry.url)
        return True

    def _attach(self, entry: RegisteredWorker, worker: Worker) -> None:
        breaker = entry.breaker
        was_ready = False

        def load_changed() -> None:
            # Called with every step of an engine.
            self._on_load(entry)
            if entry.is_leaving and not worker.inflight_requests:
                self._on_drained(entry)

        def state_changed() -> None:
            nonlocal was_ready
            has_returned = worker.is_ready and not was_ready
            was_ready = worker.is_ready
            if has_returned and breaker.try_again(worker.inflight_requests):
                self._breaker_changed(entry)
            else:
                self._on_change(entry)

        def ended(error: SmgError | None) -> None:
            if breaker.succeeded() if error is None else is_own_fault(error) and breaker.failed():
                self._breaker_changed(entry)

        entry.worker = worker
        worker.on_state_change = state_changed
        worker.on_load_change = load_changed
        worker.on_outcome = ended
        watcher = self.cache_watcher
        if watcher is not None:
            worker.on_cache_change = lambda changes: watcher(entry, changes)
        self._on_change(entry)

    def _detach(self, entry: RegisteredWorker, why: str) -> None:
        if why != entry.why_not_known:
            _log.warning("worker %s: %s", entry.url, why)
        entry.last_description = entry.description
        entry.worker, entry.why_not_known = None, why
        self._on_change(entry)

    def _breaker_changed(self, entry: RegisteredWorker) -> None:
        breaker = entry.breaker
        level = logging.WARNING if breaker.state is BreakerState.OPEN else logging.INFO
        _log.log(level, "worker %s: its circuit breaker is %s", entry.url, breaker.state.value)
        if not entry.is_leaving:
            self._watch_breaker(entry)
        self._on_change(entry)

    def _watch_breaker(self, entry: RegisteredWorker) -> None:
        self._clear_timer(entry)
        if entry.breaker.state is BreakerState.OPEN:
            self._set_timer(entry, entry.breaker.half_opens_in_s, self._open_long_enough)

    def _open_long_enough(self, entry: RegisteredWorker) -> None:
        if entry.breaker.try_again(entry.inflight_requests):
            self._breaker_changed(entry)

    def _drained_too_long(self, entry: RegisteredWorker) -> None:
        running, waited_s = entry.inflight_requests, self._options.drain_s
        _log.warning(
            "worker %s: %d sequences still run after %g s; they go on elsewhere", entry.url, running, waited_s
        )
        self._on_drained(entry)

    def _set_timer(
        self, entry: RegisteredWorker, delay_s: float, then: Callable[[RegisteredWorker], None]
    ) -> None:
        self._clear_timer(entry)
        self._timers[entry.id] = asyncio.get_running_loop().call_later(delay_s, then, entry)

    def _clear_timer(self, entry: RegisteredWorker) -> None:
        timer = self._timers.pop(entry.id, None)
        if timer is not None:
            timer.cancel()
