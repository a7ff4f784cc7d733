"""SGLang's methods as functions on one connection: paths, messages, time limits, statuses as errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from smg_grpc_proto.generated import common_pb2
from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

from smg.errors import INTERNAL, NOT_FOUND, RESOURCE_EXHAUSTED, UNIMPLEMENTED, EngineError, NotFound
from smg.workers.channel import RETRYABLE_CODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from smg.workers.http2.calls import Call, Receiver
    from smg.workers.http2.connection import Connection
    from smg.workers.http2.headers import Status
    from smg.workers.options import WorkerOptions

_SERVICE = "/sglang.grpc.scheduler.SglangScheduler/"
GENERATE = _SERVICE + "Generate"
MODEL_INFO = _SERVICE + "GetModelInfo"
_EMBED = _SERVICE + "Embed"
_HEALTH = _SERVICE + "HealthCheck"
_ABORT = _SERVICE + "Abort"
_SERVER_INFO = _SERVICE + "GetServerInfo"
_LOADS = _SERVICE + "GetLoads"
_FLUSH = _SERVICE + "FlushCache"
_TOKENIZER = _SERVICE + "GetTokenizer"


def status_error(status: Status, what: str = "") -> EngineError:
    """What a failed call means."""
    message = status.message or f"status {status.code}"
    return EngineError(
        f"{what}: {message}" if what else message,
        engine_code=status.code,
        can_retry=status.code in RETRYABLE_CODES,
    )


class SglangClient:
    """The calls of one connection that are not on the hot path."""

    def __init__(self, connection: Connection, options: WorkerOptions) -> None:
        self.connection = connection
        self._options = options

    def generate(self, request: sglang_pb2.GenerateRequest, receiver: Receiver, traceparent: str) -> Call:
        """Start a sequence."""
        metadata = (("traceparent", traceparent),) if traceparent.isascii() and traceparent else ()
        return self.connection.call(GENERATE, request.SerializeToString(), receiver, metadata)

    async def prefill(self, request: sglang_pb2.GenerateRequest) -> sglang_pb2.GenerateComplete:
        """Run a request that generates nothing. Raises EngineError."""
        messages, status = await self.connection.ask(
            GENERATE, request.SerializeToString(), self._options.job_timeout_s
        )
        if status.code:
            raise status_error(status)
        for message in messages:
            response = sglang_pb2.GenerateResponse.FromString(message)
            if response.HasField("complete"):
                return response.complete
        raise EngineError("the engine ended the stream without a result", engine_code=INTERNAL)

    async def embed(self, request: sglang_pb2.EmbedRequest) -> sglang_pb2.EmbedResponse:
        """Embed one input. Raises EngineError."""
        answer = await self._ask(_EMBED, request.SerializeToString(), self._options.job_timeout_s)
        return sglang_pb2.EmbedResponse.FromString(answer)

    async def health(self) -> str:
        """What is wrong, in words; empty when nothing is."""
        try:
            answer = sglang_pb2.HealthCheckResponse.FromString(await self._ask(_HEALTH))
        except EngineError as error:
            return f"health check failed: {error.message}"
        return "" if answer.healthy else f"health check says: {answer.message or 'not healthy'}"

    async def abort(self, request_id: str) -> None:
        """Stop a request. Raises EngineError."""
        request = sglang_pb2.AbortRequest(request_id=request_id, reason="the client has left")
        await self._ask(_ABORT, request.SerializeToString())

    async def model_info(self) -> sglang_pb2.GetModelInfoResponse:
        """What is served. Raises EngineError."""
        return sglang_pb2.GetModelInfoResponse.FromString(await self._ask(MODEL_INFO))

    async def server_info(self) -> sglang_pb2.GetServerInfoResponse:
        """How the server was started; empty where it does not tell. Raises EngineError."""
        return sglang_pb2.GetServerInfoResponse.FromString(await self._ask_if_known(_SERVER_INFO))

    async def loads(self) -> sglang_pb2.GetLoadsResponse:
        """How busy it is; empty where it does not tell. Raises EngineError."""
        return sglang_pb2.GetLoadsResponse.FromString(await self._ask_if_known(_LOADS))

    async def flush_cache(self) -> None:
        """Forget cached prefixes. Raises EngineError."""
        answer = common_pb2.FlushCacheResponse.FromString(await self._ask(_FLUSH))
        if not answer.success:
            raise EngineError(f"flush the cache: {answer.message or 'refused'}", engine_code=INTERNAL)

    async def tokenizer(self) -> AsyncIterator[common_pb2.GetTokenizerChunk]:
        """The tokenizer archive, piece by piece.

        Raises:
            NotFound: the server has none to give.
            EngineError: the transfer failed, or took too long, or is longer than allowed.
        """
        limit_bytes = self._options.tokenizer_archive_bytes
        pieces = _Pieces(limit_bytes)
        call = self.connection.call(_TOKENIZER, b"", pieces)
        try:
            async with asyncio.timeout(self._options.tokenizer_timeout_s):
                while (piece := await pieces.queue.get()) is not None:
                    yield common_pb2.GetTokenizerChunk.FromString(piece)
        finally:
            self.connection.cancel(call)
        status = pieces.status
        if pieces.is_too_long:
            raise EngineError(
                f"tokenizer archive exceeds {limit_bytes} bytes", engine_code=RESOURCE_EXHAUSTED
            )
        if status is not None and status.code in (NOT_FOUND, UNIMPLEMENTED):
            raise NotFound(f"the worker has no tokenizer to give: {status.message}")
        if status is not None and status.code:
            raise status_error(status, "tokenizer")

    async def _ask(self, path: str, message: bytes = b"", timeout_s: float | None = None) -> bytes:
        messages, status = await self.connection.ask(
            path, message, timeout_s or self._options.health_timeout_s
        )
        if status.code:
            raise status_error(status)
        if len(messages) != 1:
            raise EngineError(f"{path} was answered with {len(messages)} messages", engine_code=INTERNAL)
        return messages[0]

    async def _ask_if_known(self, path: str) -> bytes:
        """The answer, or an empty message from a server that does not know the method."""
        try:
            return await self._ask(path)
        except EngineError as error:
            if error.engine_code == UNIMPLEMENTED:
                return b""
            raise


class _Pieces:
    """A Receiver that hands messages to a coroutine, up to a total length."""

    def __init__(self, limit_bytes: int) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.status: Status | None = None
        self.is_too_long = False
        self._left = limit_bytes

    def on_messages(self, messages: Sequence[bytes]) -> None:
        if self.is_too_long:
            return
        for message in messages:
            self._left -= len(message)
            self.is_too_long = self._left < 0
            self.queue.put_nowait(None if self.is_too_long else message)
            if self.is_too_long:
                return

    def on_end(self, status: Status) -> None:
        self.status = status
        self.queue.put_nowait(None)
