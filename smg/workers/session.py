"""A worker on smg.engine.v1: all its work on one bidirectional stream, and no task for any of it.

Events call the listeners straight from the read of the socket. Commands gather until the event loop's turn is over and
leave as one message. The stream is a lease: when it breaks, the engine drops what it started on it, and every
listener here is told.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

from smg.errors import UNIMPLEMENTED, EngineError
from smg.workers.backlog import Backlog
from smg.workers.base import ProtocolMismatch
from smg.workers.connected import ConnectedWorker, ConnectionLost
from smg.workers.engine_client import SERVICE, EngineClient, Session
from smg.workers.http2.connecting import connect
from smg.workers.listeners import Listeners
from smg.workers.outbox import Outbox
from smg.workers.silence import wait_for_silence
from smg.workers.step_rate import StepRate
from smg.workers.tokenizer_archive import save_archive
from smg_proto.engine.v1 import engine_pb2

if TYPE_CHECKING:
    from pathlib import Path

    from smg.errors import SmgError
    from smg.workers.base import GenerateListener, ResultListener
    from smg.workers.http2.connection import Connection
    from smg.workers.options import WorkerOptions
    from smg_proto.engine.v1 import card_pb2, work_pb2

# Pause between looks at whether a connection that is to be closed still carries work.
_LEAVING_LOOK_S = 0.2

ID_BYTES = 4
_WATCH_CACHE = engine_pb2.SessionRequest(watch_cache=True).SerializeToString()


class SessionWorker(ConnectedWorker):
    """One engine, through one session at a time."""

    protocol = "session"

    def __init__(self, worker_id: str, url: str, options: WorkerOptions) -> None:
        super().__init__(worker_id, url, options)
        self._sequences = itertools.count(1)
        self._outbox = Outbox(options.write_batch_bytes)
        self._is_flush_due = False
        self._listeners = Listeners(self._send_abort, self._outcome)
        self._client: EngineClient | None = None
        self._session: Session | None = None
        self._progress = self._events = 0
        self._backlog = Backlog()
        self._rate = StepRate()

    @property
    def steps_per_second(self) -> float:
        """From the load records that the engine pushes."""
        return self._rate.per_second(time.monotonic())

    @property
    def inflight_requests(self) -> int:
        """Sequences with a listener."""
        return len(self._listeners)

    @property
    def backlog_tokens(self) -> float:
        """As the engine told with its last step, and what was sent since."""
        return self._backlog.tokens

    def generate(self, request: work_pb2.Generate, listener: GenerateListener) -> int:
        """Submit a sequence."""
        self._refuse_unless_open()
        sequence = request.sequence = next(self._sequences)
        self._outbox.add_generate(request)
        self._listeners.add_generate(sequence, listener)
        self._backlog.sent(len(request.prompt_ids) // ID_BYTES)
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

    def classify(self, request: work_pb2.Classify, listener: ResultListener) -> int:
        """Submit an input to classify."""
        self._refuse_unless_open()
        sequence = request.sequence = next(self._sequences)
        self._outbox.add_classify(request)
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
        await save_archive(self._open_client().tokenizer(model), target, self._options)

    async def flush_cache(self) -> None:
        """Forget prefixes that nothing uses."""
        await self._open_client().flush_cache()

    async def load_lora(self, name: str, path: str) -> None:
        """Load an adapter."""
        await self._open_client().load_lora(name, path)
        await self._describe_again()

    async def unload_lora(self, name: str) -> None:
        """Forget an adapter."""
        await self._open_client().unload_lora(name)
        await self._describe_again()

    async def start_profile(self, output_dir: str) -> None:
        """Record a profile."""
        await self._open_client().start_profile(output_dir)

    async def stop_profile(self) -> None:
        """End the recording."""
        await self._open_client().stop_profile()

    async def _describe_again(self) -> None:
        self._described(await self._open_client().describe())

    async def _serve_once(self) -> None:
        try:
            connection = await connect(self._address, self._options)
        except (OSError, TimeoutError) as fault:
            raise ConnectionLost(f"cannot connect: {fault or 'no answer in time'}") from fault
        try:
            client = self._client = EngineClient(connection, self._options)
            session, description = await self._open_session(connection, client)
            await self._check_health()
            self._session = session
            self._backlog = Backlog()
            if self.on_cache_change is not None:
                session.send(_WATCH_CACHE)
            self._opened(description)
            await self._serve_together(self._watch_end(connection, session), self._watch_silence())
        finally:
            self._is_open = False
            self._client = self._session = None
            self._outbox.clear()
            connection.close()

    async def _open_session(
        self, connection: Connection, client: EngineClient
    ) -> tuple[Session, card_pb2.DescribeResponse]:
        timeout_s = self._options.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                description = await client.describe()
                session = Session(connection, self._on_event)
                ready = await session.wait_ready()
                if ready.instance_id != description.instance_id:
                    # It has restarted between the two calls.
                    description = await client.describe()
        except TimeoutError:
            raise ConnectionLost(f"no session within {timeout_s:g} s") from None
        except EngineError as error:
            if error.engine_code == UNIMPLEMENTED:
                raise ProtocolMismatch(f"the server does not speak {SERVICE}") from error
            raise ConnectionLost(f"cannot be described: {error.message}") from error
        return session, description

    async def _watch_end(self, connection: Connection, session: Session) -> None:
        await asyncio.wait((session.ended, connection.ending), return_when=asyncio.FIRST_COMPLETED)
        if not session.ended.done():
            self._why_leaving = connection.ending.result()
            self._notify()
        while not session.ended.done() and len(self._listeners):
            await asyncio.wait((session.ended,), timeout=_LEAVING_LOOK_S)
        # A session that carries nothing is not waited for: a proxy may keep it for ever.
        raise ConnectionLost(session.ended.result() if session.ended.done() else self._why_leaving)

    async def _watch_silence(self) -> None:
        silence_s = self._options.silence_s
        await wait_for_silence(silence_s, lambda: self._events, lambda: len(self._listeners))
        raise ConnectionLost(f"nothing was heard for {silence_s:g} s while sequences ran")

    async def _ask_health(self) -> str:
        return await self._open_client().health()

    async def _ask_load(self) -> card_pb2.Load:
        return await self._open_client().load()

    def _progress_seen(self) -> int:
        return self._progress

    def _sequences_running(self) -> int:
        return len(self._listeners)

    def _give_up(self, error: SmgError) -> None:
        for sequence in self._listeners.sequences():
            self._send_abort(sequence)
        self._listeners.fail_all(error)

    def _on_event(self, event: engine_pb2.SessionEvent) -> None:
        self._events += 1
        if event.HasField("load"):
            load = event.load
            # A load alone comes at least every second, from an engine that stands still as well.
            self._progress += load.steps != self._load.steps or bool(event.sequence)
            self._load = load
            self._backlog.told(load.waiting_uncached_tokens)
            self._rate.heard(time.monotonic(), load.steps)
        else:
            self._progress += 1
        if started := event.started:
            for entry in started:
                self._backlog.started(entry.prompt_tokens, entry.cached_tokens)
        if self.on_cache_change is not None and (changes := event.cache):
            self.on_cache_change(changes)
        self._listeners.dispatch(event)
        self.on_load_change()

    def _submitted(self) -> None:
        if not self._is_flush_due:
            self._flush_soon()
        self.on_load_change()

    def _send_abort(self, sequence: int) -> None:
        if self._session is not None:
            self._outbox.add_abort(sequence)
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Write when this turn of the loop is over: what else it brings goes in the same message."""
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        session, outbox = self._session, self._outbox
        while session is not None and outbox:
            session.send(outbox.take())

    def _open_client(self) -> EngineClient:
        if self._client is None:
            raise self._not_connected()
        return self._client
