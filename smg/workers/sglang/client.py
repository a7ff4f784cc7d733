"""SGLang's methods as functions on one connection: paths, messages, time limits, statuses as errors."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Protocol

from smg_grpc_proto.generated import common_pb2
from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

from smg.errors import FAILED_PRECONDITION, INTERNAL, UNIMPLEMENTED, EngineError
from smg.workers.http2.methods import ask, status_error, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from smg.workers.http2.calls import Call, Receiver
    from smg.workers.http2.connection import Connection
    from smg.workers.options import WorkerOptions

_SERVICE = "/sglang.grpc.scheduler.SglangScheduler/"


def trace_metadata(traceparent: str, tracestate: str) -> tuple[tuple[str, str], ...]:
    """W3C trace context as the metadata of a call."""
    if not traceparent or not traceparent.isascii():
        return ()
    parent = ("traceparent", traceparent)
    return (parent, ("tracestate", tracestate)) if tracestate and tracestate.isascii() else (parent,)


class SglangClient:
    """The calls of one connection that are not on the hot path.

    Attributes:
        service: path of the protocol's service.
    """

    service = _SERVICE

    def __init__(self, connection: Connection, options: WorkerOptions) -> None:
        self.connection = connection
        self._options = options
        self._lora_ids: dict[str, str] = {}

    def generate(
        self, request: sglang_pb2.GenerateRequest, receiver: Receiver, traceparent: str, tracestate: str
    ) -> Call:
        """Start a call. An adapter's name becomes the server's id of it."""
        self._put_lora_id(request)
        metadata = trace_metadata(traceparent, tracestate)
        return self.connection.call(
            self.service + "Generate", request.SerializeToString(), receiver, metadata
        )

    async def prefill(self, request: sglang_pb2.GenerateRequest) -> sglang_pb2.GenerateComplete:
        """Run a request that generates nothing. Adapters as in generate. Raises EngineError."""
        self._put_lora_id(request)
        messages, status = await self.connection.ask(
            self.service + "Generate", request.SerializeToString(), self._options.job_timeout_s
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
        answer = await self._ask("Embed", request.SerializeToString(), self._options.job_timeout_s)
        return sglang_pb2.EmbedResponse.FromString(answer)

    async def health(self) -> str:
        """What is wrong, in words; empty when nothing is."""
        try:
            answer = sglang_pb2.HealthCheckResponse.FromString(await self._ask("HealthCheck"))
        except EngineError as error:
            return f"health check failed: {error.message}"
        return "" if answer.healthy else f"health check says: {answer.message or 'not healthy'}"

    async def abort(self, request_id: str) -> None:
        """Stop a request. Raises EngineError."""
        request = sglang_pb2.AbortRequest(request_id=request_id, reason="the client has left")
        await self._ask("Abort", request.SerializeToString())

    async def model_info(self) -> sglang_pb2.GetModelInfoResponse:
        """What is served. Raises EngineError."""
        return sglang_pb2.GetModelInfoResponse.FromString(await self._ask("GetModelInfo"))

    async def server_info(self) -> sglang_pb2.GetServerInfoResponse:
        """How the server was started; empty where it does not tell. Raises EngineError."""
        return sglang_pb2.GetServerInfoResponse.FromString(await self._ask_if_known("GetServerInfo"))

    async def loads(self) -> sglang_pb2.GetLoadsResponse:
        """How busy it is; empty where it does not tell. Raises EngineError."""
        return sglang_pb2.GetLoadsResponse.FromString(await self._ask_if_known("GetLoads"))

    async def loras(self) -> list[str]:
        """Names of the adapters that are loaded; none where it does not tell. Raises EngineError."""
        answer = await self._ask_if_known("ListLoadedLoRAAdapters")
        adapters = sglang_pb2.ListLoadedLoRAAdaptersResponse.FromString(answer).loaded_adapters
        self._lora_ids = {adapter.lora_name: adapter.lora_id for adapter in adapters}
        return sorted(self._lora_ids)

    async def load_lora(self, name: str, path: str) -> None:
        """Load an adapter, under an id of ours. Raises EngineError."""
        request = sglang_pb2.LoadLoRAAdapterRequest(
            lora_name=name, lora_path=path, lora_id=secrets.token_hex(16)
        )
        answer = await self._operate("LoadLoRAAdapter", request.SerializeToString())
        _refuse_unless_done(sglang_pb2.LoadLoRAAdapterResponse.FromString(answer))

    async def unload_lora(self, name: str) -> None:
        """Forget an adapter. Raises EngineError."""
        request = sglang_pb2.UnloadLoRAAdapterRequest(lora_name=name, lora_id=self._lora_ids.get(name, ""))
        answer = await self._operate("UnloadLoRAAdapter", request.SerializeToString())
        _refuse_unless_done(sglang_pb2.UnloadLoRAAdapterResponse.FromString(answer))

    async def start_profile(self, output_dir: str) -> None:
        """Record a profile. Raises EngineError."""
        request = common_pb2.StartProfileRequest(output_dir=output_dir or None)
        answer = await self._operate("StartProfile", request.SerializeToString())
        _refuse_unless_done(common_pb2.ProfileResponse.FromString(answer))

    async def stop_profile(self) -> None:
        """End the recording. Raises EngineError."""
        _refuse_unless_done(common_pb2.ProfileResponse.FromString(await self._operate("StopProfile", b"")))

    async def _operate(self, method: str, message: bytes) -> bytes:
        return await self._ask(method, message, self._options.job_timeout_s)

    async def flush_cache(self) -> None:
        """Forget cached prefixes. Raises EngineError."""
        answer = common_pb2.FlushCacheResponse.FromString(await self._ask("FlushCache"))
        if not answer.success:
            raise EngineError(f"flush the cache: {answer.message or 'refused'}", engine_code=INTERNAL)

    async def tokenizer(self) -> AsyncIterator[common_pb2.GetTokenizerChunk]:
        """The tokenizer archive, piece by piece. Raises EngineError."""
        options = self._options
        pieces = stream(
            self.connection,
            self.service + "GetTokenizer",
            b"",
            timeout_s=options.tokenizer_timeout_s,
            # Each piece carries a few bytes beside its data.
            limit_bytes=options.tokenizer_archive_bytes + options.tokenizer_archive_bytes // 64 + 1024,
        )
        async for piece in pieces:
            yield common_pb2.GetTokenizerChunk.FromString(piece)

    def _put_lora_id(self, request: sglang_pb2.GenerateRequest) -> None:
        # A name that is not known may be an id, or an adapter that was loaded since.
        request.lora_id = self._lora_ids.get(request.lora_id, request.lora_id)

    async def _ask(self, method: str, message: bytes = b"", timeout_s: float | None = None) -> bytes:
        path = self.service + method
        return await ask(self.connection, path, message, timeout_s or self._options.health_timeout_s)

    async def _ask_if_known(self, method: str) -> bytes:
        """The answer, or an empty message from a server that does not know the method."""
        try:
            return await self._ask(method)
        except EngineError as error:
            if error.engine_code == UNIMPLEMENTED:
                return b""
            raise


class _Done(Protocol):
    """An answer that says whether it was done."""

    success: bool
    message: str


def _refuse_unless_done(answer: _Done) -> None:
    if not answer.success:
        text = answer.message or "the engine refused, and did not say why"
        raise EngineError(text, engine_code=FAILED_PRECONDITION)
