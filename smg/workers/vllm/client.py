"""vLLM's methods as functions on one connection; those that SGLang has too are inherited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2
from smg_grpc_proto.generated import vllm_engine_pb2 as vllm_pb2

from smg.workers.sglang.client import SglangClient, trace_metadata

if TYPE_CHECKING:
    from smg.workers.http2.calls import Call, Receiver

_SERVICE = "/vllm.grpc.engine.VllmEngine/"


class VllmClient(SglangClient):
    """The calls of one connection. Messages that are told in SGLang's words are turned into vLLM's here."""

    service = _SERVICE

    def generate(self, request: Any, receiver: Receiver, traceparent: str, tracestate: str) -> Call:
        """Start a call."""
        metadata = trace_metadata(traceparent, tracestate)
        return self.connection.call(
            self.service + "Generate", request.SerializeToString(), receiver, metadata
        )

    async def embed(self, request: sglang_pb2.EmbedRequest) -> sglang_pb2.EmbedResponse:
        """Embed one input. Raises EngineError."""
        message = vllm_pb2.EmbedRequest(request_id=request.request_id)
        message.tokenized.input_ids.extend(request.tokenized.input_ids)
        data = await self._ask("Embed", message.SerializeToString(), self._options.job_timeout_s)
        answer = vllm_pb2.EmbedResponse.FromString(data)
        return sglang_pb2.EmbedResponse(
            embedding=answer.embedding, embedding_dim=answer.embedding_dim, prompt_tokens=answer.prompt_tokens
        )

    async def abort(self, request_id: str) -> None:
        """Stop a request. Raises EngineError."""
        await self._ask("Abort", vllm_pb2.AbortRequest(request_ids=[request_id]).SerializeToString())

    async def model_info(self) -> Any:
        """What is served: vLLM's own message. Raises EngineError."""
        return vllm_pb2.GetModelInfoResponse.FromString(await self._ask("GetModelInfo"))

    async def server_info(self) -> Any:
        """How the server was started: vLLM's own message. Raises EngineError."""
        return vllm_pb2.GetServerInfoResponse.FromString(await self._ask_if_known("GetServerInfo"))

    async def loads(self) -> sglang_pb2.GetLoadsResponse:
        """How busy it is; the records have SGLang's names. Raises EngineError."""
        answer = vllm_pb2.GetLoadsResponse.FromString(await self._ask_if_known("GetLoads"))
        return cast("sglang_pb2.GetLoadsResponse", answer)

    async def loras(self) -> list[str]:
        """None: the protocol knows no adapters."""
        return []
