"""Responses that run in the background: bounded in number, followed while they run and a while after, and stopped.

A response runs on the router that took it, which vouches for it in the store as long as it runs. Others find its state
there; they can end it, which this router notices when it vouches next, and cannot follow it. When the router stops, what
still runs is stopped with it and kept as cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import InternalError, InvalidRequest, Overloaded, SmgError, StorageFailed
from smg.pipelines.event_log import EventLog
from smg.pipelines.response_keeper import lease_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from smg.pipelines.meter import RequestMeter
    from smg.pipelines.response_run import ResponseRun
    from smg.pipelines.responses import ResponsesPipeline
    from smg.responses.events import Outlet
    from smg.responses.shapes import Json
    from smg.storage.base import HistoryStore
    from smg.types.context import RequestContext
    from smg_proto.responses.v1 import responses_pb2

logger = logging.getLogger(__name__)


class Started(NamedTuple):
    """A response that has begun.

    Attributes:
        body: its object: queued.
        log: its events; None where none were asked for.
    """

    body: Json
    log: EventLog | None


class _Running(NamedTuple):
    run: ResponseRun
    task: asyncio.Task[None]
    queued: asyncio.Future[Json]
    log: EventLog | None

    def stop(self) -> None:
        """End it, where its end has not begun."""
        if not self.run.is_ending:
            self.task.cancel()


class _LogFront:
    """Whoever may follow the response."""

    def __init__(self, outlet: Outlet | None) -> None:
        self.outlet = outlet

    def begin(self) -> None:
        """Nobody waits for it."""


class BackgroundResponses:
    """The responses that run in the background on this router.

    Args:
        pipeline: makes them.
        most: that run or wait at a time; 0 for no background at all.
        max_log_bytes: of events that are kept of each.
        store: where their state is.
        lease_s: time for which they are vouched for.
        sleep: waits for seconds.
        now: Unix time in seconds.
    """

    def __init__(
        self,
        pipeline: ResponsesPipeline,
        most: int,
        max_log_bytes: int,
        store: HistoryStore,
        lease_s: float,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.time,  # noqa: TID251 - compared with times that are kept
    ) -> None:
        self._pipeline = pipeline
        self._most = most
        self._max_log_bytes = max_log_bytes
        self._store = store
        self._lease_s = lease_s
        self._sleep = sleep
        self._now = now
        self._running: dict[tuple[str, str], _Running] = {}
        # Logs of those that have ended, the oldest first: as many as may run.
        self._ended: OrderedDict[tuple[str, str], EventLog] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """`background: true` means something."""
        return self._most > 0

    @property
    def size(self) -> int:
        """How many run or wait."""
        return len(self._running)

    async def start(
        self,
        message: responses_pb2.ResponseRequest,
        context: RequestContext,
        new_meter: Callable[[], RequestMeter],
        *,
        stream: bool,
    ) -> Started:
        """Check a request and let it run.

        Raises:
            Overloaded: too many run already.
            SmgError: the request is refused, or the store does not answer.
        """
        log = EventLog(self._max_log_bytes) if stream else None
        run = await self._pipeline.waiting(message, context, _LogFront(log), new_meter)
        if len(self._running) >= self._most:
            raise Overloaded(
                f"{len(self._running)} responses run in the background; no more are taken now",
                code="background_queue_full",
                retry_after_s=2,
            )
        key = context.caller.tenant, run.id
        loop = asyncio.get_running_loop()
        queued: asyncio.Future[Json] = loop.create_future()
        # From here on it runs whether its client stays or not.
        task = loop.create_task(self._run(key, run, log, queued))
        self._running[key] = _Running(run, task, queued, log)
        return Started(await asyncio.shield(queued), log)

    def log(self, tenant: str, response_id: str) -> EventLog:
        """The events of a response.

        Raises:
            InvalidRequest: they are not kept here.
        """
        key = tenant, response_id
        running = self._running.get(key)
        log = running.log if running is not None else self._ended.get(key)
        if log is None:
            raise InvalidRequest(
                f"the events of {response_id[:80]!r} are not kept: only a response that was created with background "
                "and stream can be followed, on the router that runs it",
                code="stream_not_available",
                param="stream",
            )
        return log

    async def cancel(self, tenant: str, response_id: str) -> bool:
        """Stop a response that runs here, and wait for its end. Returns whether it ran."""
        running = self._running.get((tenant, response_id))
        if running is None:
            return False
        running.stop()
        await asyncio.wait((running.task,))
        return True

    def runs(self, tenant: str, response_id: str) -> bool:
        """A response runs here."""
        return (tenant, response_id) in self._running

    async def vouch(self) -> None:
        """Vouch for all that runs, again and again until cancelled."""
        while self.is_on:
            await self._sleep(self._lease_s / 3)
            await self.renew()

    async def renew(self) -> None:
        """Vouch for all that runs, and stop what somebody else has ended."""
        running = {key: each for key, each in self._running.items() if each.queued.done()}
        if not running:
            return
        try:
            still = await self._store.renew(tuple(running), lease_end(self._now(), self._lease_s))
        except StorageFailed as error:
            logger.warning("background responses cannot be vouched for: %s", error.message)
            return
        for key, each in running.items():
            if key not in still:
                each.stop()

    async def close(self) -> None:
        """Stop all of them."""
        running = tuple(self._running.values())
        for each in running:
            each.stop()
        if running:
            await asyncio.wait([each.task for each in running])

    async def _run(
        self, key: tuple[str, str], run: ResponseRun, log: EventLog | None, queued: asyncio.Future[Json]
    ) -> None:
        try:
            if await _is_queued(run, queued):
                await run.run_queued()
        except SmgError as error:
            logger.warning("background response %s cannot be kept: %s", key[1], error.message)
        except Exception:
            logger.exception("background response %s failed", key[1])
        finally:
            del self._running[key]
            if log is not None:
                log.close()
                self._ended[key] = log
                while len(self._ended) > self._most:
                    self._ended.popitem(last=False)


async def _is_queued(run: ResponseRun, queued: asyncio.Future[Json]) -> bool:
    """Queue a response, and tell whoever waits for that how it went."""
    try:
        body = await run.queue()
    except BaseException as error:
        refusal = error if isinstance(error, SmgError) else InternalError("the response could not be queued")
        queued.set_exception(refusal)
        # Retrieved here as well: its client may have left.
        queued.exception()
        if isinstance(error, SmgError):
            return False
        raise
    queued.set_result(body)
    return True
