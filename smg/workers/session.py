"""A worker on smg.engine.v1: all its work on one bidirectional stream.

One coroutine reads and calls the listeners, one writes what has gathered; a request costs no task. The stream is a
lease: when it breaks, the engine drops what it started on it, and every listener here is told.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import grpc.aio

from smg.workers.channel import engine_error, open_channel
from smg.workers.connected import ConnectedWorker
from smg.workers.grpc_health import check_health
from smg.workers.listeners import Listeners
from smg.workers.outbox import Outbox
from smg.workers.session_stream import SERVICE, open_session
from smg.workers.tokenizer_archive import save_archive
from smg_proto.engine.v1 import card_pb2, engine_pb2_grpc

if TYPE_CHECKING:
    from pathlib import Path

    from smg.errors import SmgError
    from smg.workers.base import GenerateListener, ResultListener
    from smg.workers.options import WorkerOptions
    from smg_proto.engine.v1 import engine_pb2, work_pb2


class SessionWorker(ConnectedWorker):
    """One engine, through one session at a time."""

    protocol = "session"

    def __init__(self, worker_id: str, url: str, options: WorkerOptions) -> None:
        super().__init__(worker_id, url, options)
        self._sequences = itertools.count(1)
        self._outbox = Outbox(options.write_batch_bytes)
        self._has_commands = asyncio.Event()
        self._listeners = Listeners(self._send_abort)
        self._channel: grpc.aio.Channel | None = None
        self._progress = 0

    @property
    def inflight_requests(self) -> int:
        """Sequences with a listener."""
        return len(self._listeners)

    def generate(self, request: work_pb2.Generate, listener: GenerateListener) -> int:
        """Submit a sequence."""
        self._refuse_unless_open()
        sequence = request.sequence = next(self._sequences)
        self._outbox.add_generate(request)
        self._listeners.add_generate(sequence, listener)
        self._submitted()
        return sequence

    def score(self, request: work_pb2.Score, listener: ResultListener) -> int:
        """Submit label sets."""
        self._refuse_unless_open()
        sequence = request.sequence = next(self._sequences)
        self._outbox.add_score(request)
        self._listeners.add_result(sequence, listener)
        self._submitted()
        return sequence

    def embed(self, request: work_pb2.Embed, listener: ResultListener) -> int:
        """Submit an input."""
        self._refuse_unless_open()
        sequence = request.sequence = next(self._sequences)
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

    async def _serve_once(self) -> None:
        channel = self._channel = open_channel(self._address.target, self._options)
        try:
            stream = await open_session(
                channel, self._options.connect_timeout_s, self._outbox, self._has_commands
            )
            await self._check_health()
            self._outbox.clear()
            self._opened(stream.description)
            await self._serve_together(stream.read(self._on_event), stream.write())
        finally:
            self._is_open = False
            self._channel = None
            await channel.close(None)

    async def _ask_health(self) -> str:
        return await check_health(self._open_channel(), SERVICE, self._options.health_timeout_s)

    def _progress_seen(self) -> int:
        return self._progress

    def _sequences_running(self) -> int:
        return len(self._listeners)

    def _give_up(self, error: SmgError) -> None:
        for sequence in self._listeners.sequences():
            self._send_abort(sequence)
        self._listeners.fail_all(error)

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

    def _submitted(self) -> None:
        self._has_commands.set()
        self.on_load_change()

    def _send_abort(self, sequence: int) -> None:
        if self._is_open:
            self._outbox.add_abort(sequence)
            self._has_commands.set()

    def _open_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise self._not_connected()
        return self._channel
