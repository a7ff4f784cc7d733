"""The methods of smg.engine.v1 and its health, as functions on one connection; and the session."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from smg.errors import UNIMPLEMENTED, EngineError
from smg.workers.connected import ConnectionLost
from smg.workers.http2.methods import ask, stream
from smg_proto.engine.v1 import card_pb2, engine_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from smg.workers.http2.calls import Call
    from smg.workers.http2.connection import Connection
    from smg.workers.http2.headers import Status
    from smg.workers.options import WorkerOptions

SERVICE = "smg.engine.v1.EngineService"
DESCRIBE = f"/{SERVICE}/Describe"
_SESSION = f"/{SERVICE}/Session"
_TOKENIZER = f"/{SERVICE}/GetTokenizer"
_LOAD = f"/{SERVICE}/GetLoad"
_FLUSH = f"/{SERVICE}/FlushCache"
_HEALTH = "/grpc.health.v1.Health/Check"

_HEALTH_QUESTION = health_pb2.HealthCheckRequest(service=SERVICE).SerializeToString()
_SERVING = health_pb2.HealthCheckResponse.SERVING

_log = logging.getLogger(__name__)


class EngineClient:
    """One engine over one connection."""

    def __init__(self, connection: Connection, options: WorkerOptions) -> None:
        self._connection = connection
        self._options = options

    async def describe(self) -> card_pb2.DescribeResponse:
        """What is served. Raises EngineError."""
        answer = await ask(self._connection, DESCRIBE, b"", self._options.connect_timeout_s)
        return card_pb2.DescribeResponse.FromString(answer)

    async def load(self) -> card_pb2.Load:
        """How busy it is now. Raises EngineError."""
        answer = await ask(self._connection, _LOAD, b"", self._options.health_timeout_s)
        return card_pb2.GetLoadResponse.FromString(answer).load

    async def flush_cache(self) -> None:
        """Forget cached prefixes. Raises EngineError."""
        await ask(self._connection, _FLUSH, b"", self._options.health_timeout_s)

    async def load_lora(self, name: str, path: str) -> None:
        """Load an adapter. Raises EngineError."""
        await self._operate("LoadLora", card_pb2.LoadLoraRequest(name=name, path=path).SerializeToString())

    async def unload_lora(self, name: str) -> None:
        """Forget an adapter. Raises EngineError."""
        await self._operate("UnloadLora", card_pb2.UnloadLoraRequest(name=name).SerializeToString())

    async def start_profile(self, output_dir: str) -> None:
        """Record a profile. Raises EngineError."""
        request = card_pb2.StartProfileRequest(output_dir=output_dir)
        await self._operate("StartProfile", request.SerializeToString())

    async def stop_profile(self) -> None:
        """End the recording. Raises EngineError."""
        await self._operate("StopProfile", b"")

    async def _operate(self, method: str, message: bytes) -> None:
        await ask(self._connection, f"/{SERVICE}/{method}", message, self._options.job_timeout_s)

    async def health(self) -> str:
        """What is wrong, in words; empty when nothing is.

        A server without a health service counts as well: its session is proof of life enough.
        """
        try:
            answer = await ask(self._connection, _HEALTH, _HEALTH_QUESTION, self._options.health_timeout_s)
        except EngineError as error:
            return "" if error.engine_code == UNIMPLEMENTED else f"health check failed: {error.message}"
        status = health_pb2.HealthCheckResponse.FromString(answer).status
        if status == _SERVING:
            return ""
        return f"health check says {health_pb2.HealthCheckResponse.ServingStatus.Name(status)}"

    async def tokenizer(self, model: str) -> AsyncIterator[card_pb2.GetTokenizerResponse]:
        """The tokenizer archive, piece by piece. Raises EngineError."""
        options = self._options
        pieces = stream(
            self._connection,
            _TOKENIZER,
            card_pb2.GetTokenizerRequest(model=model).SerializeToString(),
            timeout_s=options.tokenizer_timeout_s,
            # Each piece carries a few bytes beside its data.
            limit_bytes=options.tokenizer_archive_bytes + options.tokenizer_archive_bytes // 64 + 1024,
        )
        async for piece in pieces:
            yield card_pb2.GetTokenizerResponse.FromString(piece)


class Session:
    """An open session. Receives its events (Receiver), and hands each on.

    Attributes:
        ready: done when the session is open.
        ended: done when it has ended; its result says why.
    """

    def __init__(self, connection: Connection, on_event: Callable[[engine_pb2.SessionEvent], None]) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[engine_pb2.Ready] = loop.create_future()
        self.ended: asyncio.Future[str] = loop.create_future()
        self._connection = connection
        self._on_event = on_event
        self._parse = engine_pb2.SessionEvent.FromString
        self._call: Call = connection.open(_SESSION, self)

    async def wait_ready(self) -> engine_pb2.Ready:
        """Wait until it is open.

        Raises:
            ConnectionLost: it has ended instead.
        """
        await asyncio.wait((self.ready, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if not self.ready.done():
            raise ConnectionLost(self.ended.result())
        return self.ready.result()

    def send(self, message: bytes) -> None:
        """Send a SessionRequest, serialized."""
        self._connection.send(self._call, message)

    def on_messages(self, messages: Sequence[bytes]) -> None:
        """Hand on every event of one read."""
        try:
            for message in messages:
                event = self._parse(message)
                if self.ready.done():
                    self._on_event(event)
                elif event.HasField("ready"):
                    self.ready.set_result(event.ready)
                else:
                    self._end("the first event of the session is not Ready")
        except (DecodeError, ValueError) as fault:
            self._end(f"the engine sent a malformed event: {fault}")
        except Exception as fault:  # noqa: BLE001 - a fault here must end the session, not leave it half read
            _log.exception("an event could not be taken")
            self._end(f"an event could not be taken: {fault}")

    def on_end(self, status: Status) -> None:
        """The engine, or the network, has ended the session."""
        self._end(
            status.message or ("the engine ended the session" if not status.code else f"status {status.code}")
        )

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)
        self._connection.cancel(self._call)
