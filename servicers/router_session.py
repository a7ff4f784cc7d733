"""One router's session: takes its work in, and its events out in the order in which the engine makes them.

An event is turned to bytes when the engine emits it, and handed to gRPC by the one coroutine that `send` is. What
has not been sent is bounded: past the bound the session ends, so a router that stops reading costs no memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import grpc

from servicers.intake import Intake
from servicers.muting import without_sequences
from smg_proto.engine.v1 import engine_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from servicers.base import Engine
    from servicers.limits import SessionLimits
    from servicers.models import ServedModel
    from smg_proto.engine.v1 import card_pb2


class SessionEnd(NamedTuple):
    """How a session ended."""

    code: grpc.StatusCode
    details: str = ""


_DONE = SessionEnd(grpc.StatusCode.OK)


class RouterSession:
    """The engine's EventSink, and the servicer's view of the same session. On the event loop only."""

    def __init__(self, engine: Engine, models: Mapping[str, ServedModel], limits: SessionLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._live: set[int] = set()
        self._muted: set[int] = set()
        self._intake = Intake(models, limits.max_sequences, self._live, self._muted)
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._end: SessionEnd | None = None
        self._end_when_idle: SessionEnd | None = None
        self._last_load: card_pb2.Load | None = None
        self.on_overflow: Callable[[], object] = bool
        """Called when the router has left too much unread: `send` waits for it and has to be cancelled."""

    @property
    def unsent_events(self) -> int:
        """Events that gRPC has not taken yet."""
        return len(self._unsent)

    @property
    def how_it_ended(self) -> SessionEnd | None:
        """None while it goes on."""
        return self._end

    def greet(self, instance_id: str, max_running: int) -> None:
        """Queue the session's first event."""
        ready = engine_pb2.Ready(instance_id=instance_id, max_running=max_running)
        self._push(engine_pb2.SessionEvent(ready=ready))

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        """Queue an event. Part of EventSink."""
        if self._end is not None:
            return
        if self._muted:
            event = without_sequences(event, self._muted)
        self._push(event)
        self._forget_ended(event)

    def take(self, request: engine_pb2.SessionRequest) -> None:
        """Check new work, refuse what is wrong, and give the rest to the engine."""
        if self._end is not None:
            return
        if request.watch_cache:
            self._engine.watch_cache(self)
        accepted, failed, doubled = self._intake.sort(request)
        self._muted |= doubled
        self._live -= doubled
        if failed:
            self._push(engine_pb2.SessionEvent(failed=failed))
        if accepted is not None:
            self._engine.submit(self, accepted)
        if doubled:
            # Their first use is aborted: its router can no longer tell the two apart, and may hear one end only.
            self._engine.submit(self, engine_pb2.SessionRequest(abort=doubled))
        self._end_if_idle()

    def push_load(self, load: card_pb2.Load) -> None:
        """Tell the load if work runs, or if it differs from what was told last."""
        if self._end is None and (load.running or load.waiting or load != self._last_load):
            self._last_load = load
            self._push(engine_pb2.SessionEvent(load=load))

    def refuse_new_work(self) -> None:
        """The engine is going away: what runs may end, what comes is refused, and then the session ends."""
        self._intake.is_draining = True
        self._end_when_idle = SessionEnd(grpc.StatusCode.UNAVAILABLE, "the engine is shutting down")
        self._end_if_idle()

    def no_more_requests(self) -> None:
        """The router has closed its side: the session ends when what runs has ended."""
        self._end_when_idle = self._end_when_idle or _DONE
        self._end_if_idle()

    def end(self, end: SessionEnd) -> None:
        """End the session now; what is queued is still sent, but for a router that does not read."""
        if self._end is None:
            self._end = end
            self._wake_sender()

    async def send(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Send events until the session ends."""
        unsent, loop = self._unsent, asyncio.get_running_loop()
        while True:
            while unsent:
                data = unsent.popleft()
                self._unsent_bytes -= len(data)
                await write(data)
            if self._end is not None:
                return
            self._wake = loop.create_future()
            await self._wake
            self._wake = None

    def _push(self, event: engine_pb2.SessionEvent) -> None:
        data = event.SerializeToString()
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        limits = self._limits
        if len(self._unsent) > limits.max_unsent_events or self._unsent_bytes > limits.max_unsent_bytes:
            self._overflow()
        self._wake_sender()

    def _wake_sender(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _overflow(self) -> None:
        self.end(
            SessionEnd(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the router does not read: {len(self._unsent)} events of {self._unsent_bytes} bytes wait; "
                f"allowed: {self._limits.max_unsent_events} events, {self._limits.max_unsent_bytes} bytes",
            )
        )
        self._unsent.clear()
        self._unsent_bytes = 0
        self.on_overflow()

    def _forget_ended(self, event: engine_pb2.SessionEvent) -> None:
        live = self._live
        for ends in (event.finished, event.failed, event.scored, event.embedded, event.classified):
            for each in ends:
                live.discard(each.sequence)
        if self._end_when_idle is not None:
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._end_when_idle is not None and not self._live:
            self.end(self._end_when_idle)
