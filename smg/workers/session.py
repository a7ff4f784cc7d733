"""A worker on smg.engine.v1: all its work on one bidirectional stream.

One coroutine reads and calls the listeners, one writes what has gathered; a request costs no task. The stream is a
lease: when it breaks, the engine drops what it started on it, and every listener here is told.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

import grpc.aio

from smg.errors import UNAVAILABLE, EngineError, WorkerUnavailable
from smg.workers.address import parse_url
from smg.workers.backoff import Backoff
from smg.workers.base import Worker
from smg.workers.channel import engine_error, lost_error, open_channel
from smg.workers.grpc_health import check_health
from smg.workers.health import HealthGate, WedgeWatch
from smg.workers.listeners import Listeners
from smg.workers.outbox import Outbox
from smg.workers.session_stream import SERVICE, SessionLost, SessionStream, open_session
from smg.workers.tokenizer_archive import save_archive
from smg_proto.engine.v1 import card_pb2, engine_pb2_grpc

if TYPE_CHECKING:
    from pathlib import Path

    from smg.workers.base import GenerateListener, ResultListener
    from smg.workers.options import WorkerOptions
    from smg_proto.engine.v1 import engine_pb2, work_pb2

# Looks per wedge_s: the verdict is late by at most one part of it.
_WEDGE_LOOKS = 4

# A connection that lasted so long was a success: the next loss starts with the shortest pause again.
_LASTING_S = 5.0

_log = logging.getLogger(__name__)


class SessionWorker(Worker):
    """One engine, through one session at a time."""

    protocol = "session"

    def __init__(self, worker_id: str, url: str, options: WorkerOptions) -> None:
        super().__init__(worker_id, url)
        self._target = parse_url(url).target
        self._options = options
        self._sequences = itertools.count(1)
        self._outbox = Outbox(options.write_batch_bytes)
        self._has_commands = asyncio.Event()
        self._listeners = Listeners(self._send_abort)
        self._channel: grpc.aio.Channel | None = None
        self._why_closed = "not connected yet"
        self._description: card_pb2.DescribeResponse | None = None
        self._load = card_pb2.Load()
        # Changes with every step that the engine is seen to make.
        self._progress = 0
        self._health, self._wedge = self._fresh_watches()
        self._seen: object = None

    @property
    def is_ready(self) -> bool:
        """Session open, health good, steps being made."""
        return self._channel is not None and self._health.is_healthy and not self._wedge.is_wedged

    @property
    def is_connected(self) -> bool:
        """A session is open."""
        return self._channel is not None

    @property
    def reason(self) -> str:
        """The first thing that is wrong."""
        if self._channel is None:
            return self._why_closed
        if self._wedge.is_wedged:
            return f"no step for {self._options.wedge_s:g} s while sequences ran"
        return self._health.reason

    @property
    def description(self) -> card_pb2.DescribeResponse | None:
        """As of the last connection."""
        return self._description

    @property
    def load(self) -> card_pb2.Load:
        """As last pushed."""
        return self._load

    @property
    def inflight_requests(self) -> int:
        """Sequences with a listener."""
        return len(self._listeners)

    def generate(self, request: work_pb2.Generate, listener: GenerateListener) -> int:
        """Submit a sequence."""
        sequence = request.sequence = self._next_sequence()
        self._outbox.add_generate(request)
        self._listeners.add_generate(sequence, listener)
        self._submitted()
        return sequence

    def score(self, request: work_pb2.Score, listener: ResultListener) -> int:
        """Submit label sets."""
        sequence = request.sequence = self._next_sequence()
        self._outbox.add_score(request)
        self._listeners.add_result(sequence, listener)
        self._submitted()
        return sequence

    def embed(self, request: work_pb2.Embed, listener: ResultListener) -> int:
        """Submit an input."""
        sequence = request.sequence = self._next_sequence()
        self._outbox.add_embed(request)
        self._listeners.add_result(sequence, listener)
        self._submitted()
        return sequence

    def abort(self, sequence: int) -> None:
        """Forget the listener, tell the engine."""
        if self._listeners.remove(sequence):
            self._send_abort(sequence)
            self.on_load_change()

    async def fetch_tokenizer(self, model: str, target: Path) -> None:
        """Download and unpack the archive."""
        stub = engine_pb2_grpc.EngineServiceStub(self._open_channel())
        chunks = stub.GetTokenizer(
            card_pb2.GetTokenizerRequest(model=model), timeout=self._options.tokenizer_timeout_s
        )
        await save_archive(chunks, target, self._options, self.url)

    async def flush_cache(self) -> None:
        """Forget prefixes that nothing uses."""
        stub = engine_pb2_grpc.EngineServiceStub(self._open_channel())
        try:
            await stub.FlushCache(card_pb2.FlushCacheRequest(), timeout=self._options.health_timeout_s)
        except grpc.aio.AioRpcError as error:
            raise engine_error(error, f"flush the cache of {self.url}") from error

    async def run(self) -> None:
        """Serve sessions, one after the other, until cancelled."""
        backoff = Backoff(self._options)
        now = asyncio.get_running_loop().time
        try:
            while True:
                started_at = now()
                try:
                    await self._serve_once()
                except SessionLost as lost:
                    self._lost(str(lost))
                if now() - started_at > _LASTING_S:
                    backoff.reset()
                await asyncio.sleep(backoff.next_s())
        finally:
            self._lost("the router closed the connection")

    async def _serve_once(self) -> None:
        """Connect, and serve one session to its end.

        Raises:
            SessionLost: always, unless cancelled.
            ProtocolMismatch: another kind of server answers.
        """
        channel = open_channel(self._target, self._options)
        try:
            stream = await open_session(
                channel, self._options.connect_timeout_s, self._outbox, self._has_commands
            )
            await self._check_health(channel)
            self._opened(channel, stream.description)
            await self._converse(channel, stream)
        finally:
            self._channel = None
            await channel.close(None)

    async def _converse(self, channel: grpc.aio.Channel, stream: SessionStream) -> None:
        """Read, write and watch until the session ends."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(stream.write())
                group.create_task(self._watch_health(channel))
                group.create_task(self._watch_steps())
                await stream.read(self._on_event)
        except* SessionLost as losses:
            # The first to notice is enough: the others lost the same stream.
            raise SessionLost(str(losses.exceptions[0])) from losses

    def _on_event(self, event: engine_pb2.SessionEvent) -> None:
        if event.HasField("load"):
            load = event.load
            # A load alone comes at least every second, from an engine that stands still as well.
            self._progress += load.steps != self._load.steps or bool(event.sequence)
            self._load = load
        else:
            self._progress += 1
        self._listeners.dispatch(event)
        self.on_load_change()

    async def _watch_health(self, channel: grpc.aio.Channel) -> None:
        while True:
            await asyncio.sleep(self._options.health_interval_s)
            await self._check_health(channel)
            self._notify()

    async def _check_health(self, channel: grpc.aio.Channel) -> None:
        self._health.record(await check_health(channel, SERVICE, self._options.health_timeout_s))

    async def _watch_steps(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            if self._wedge.observe(now(), self._progress, len(self._listeners)):
                if self._wedge.is_wedged:
                    self._give_up()
                self._notify()
            await asyncio.sleep(self._options.wedge_s / _WEDGE_LOOKS)

    def _give_up(self) -> None:
        """The engine is wedged: others may compute its sequences. The aborts are for when it wakes up."""
        for sequence in self._listeners.sequences():
            self._send_abort(sequence)
        self._listeners.fail_all(lost_error(self.url, self.reason))
        self.on_load_change()

    def _opened(self, channel: grpc.aio.Channel, description: card_pb2.DescribeResponse) -> None:
        known = self._description
        has_restarted = known is not None and known.instance_id != description.instance_id
        _log.info("worker %s is connected%s", self.url, " after a restart" if has_restarted else "")
        self._description = description
        self._channel = channel
        self._notify()

    def _lost(self, why: str) -> None:
        """The session is gone, and what it carried is lost with it."""
        if why != self._why_closed:
            _log.warning("worker %s is not connected: %s", self.url, why)
        self._why_closed = why
        self._load = card_pb2.Load()
        self._health, self._wedge = self._fresh_watches()
        self._outbox.clear()
        self._has_commands.clear()
        self._notify()
        self._listeners.fail_all(lost_error(self.url, why))
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

    def _next_sequence(self) -> int:
        if self._channel is None:
            raise WorkerUnavailable(f"worker {self.url} is not connected: {self._why_closed}")
        return next(self._sequences)

    def _submitted(self) -> None:
        self._has_commands.set()
        self.on_load_change()

    def _send_abort(self, sequence: int) -> None:
        if self._channel is not None:
            self._outbox.add_abort(sequence)
            self._has_commands.set()

    def _open_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise EngineError(
                f"worker {self.url} is not connected: {self._why_closed}",
                engine_code=UNAVAILABLE,
                can_retry=True,
            )
        return self._channel
