"""smg.chat.v1.ChatService: the pipelines behind the HTTP API, as typed calls.

A call awaits its answer, so that a client which leaves, or whose deadline passes, cancels it, and with it the engine's
sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from smg.profiles import profile_for
from smg.services.call import CONTEXT, start_meter
from smg.services.methods import CHAT_ROUTE, CHAT_SERVICE, COMPLETIONS_ROUTE
from smg.services.rpc import add_service, stream_method, unary_method
from smg.services.sinks import ProtoChatSink, ProtoCompletionSink
from smg.services.stream_sinks import ProtoChatStreamSink, ProtoCompletionStreamSink, StreamForm
from smg.services.streams import PieceBuffer, deliver
from smg_proto.chat.v1 import chat_pb2, completion_pb2

if TYPE_CHECKING:
    import grpc.aio

    from smg.pipelines.chat import ChatPipeline
    from smg.pipelines.completion import CompletionPipeline
    from smg.pipelines.meter import Meters
    from smg.services.rpc import Context

RequestT = TypeVar("RequestT", chat_pb2.ChatRequest, completion_pb2.CompletionRequest)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What one client that streams may cost.

    Attributes:
        max_held_bytes: most bytes held back for it while it does not read.
        max_stall_s: time that it gets to read the rest once its answer is complete.
    """

    max_held_bytes: int
    max_stall_s: float


class ChatService:
    """The methods and what they need."""

    def __init__(
        self, chat: ChatPipeline, completion: CompletionPipeline, meters: Meters, limits: StreamLimits
    ) -> None:
        self._chat = chat
        self._completion = completion
        self._meters = meters
        self._limits = limits

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        methods = {
            "CreateChatCompletion": unary_method(
                self.create_chat_completion, chat_pb2.CreateChatCompletionRequest
            ),
            "StreamChatCompletion": stream_method(
                self.stream_chat_completion, chat_pb2.StreamChatCompletionRequest
            ),
            "CreateCompletion": unary_method(self.create_completion, chat_pb2.CreateCompletionRequest),
            "StreamCompletion": stream_method(self.stream_completion, chat_pb2.StreamCompletionRequest),
        }
        add_service(server, CHAT_SERVICE, methods)

    async def create_chat_completion(
        self, request: chat_pb2.CreateChatCompletionRequest, _: Context
    ) -> chat_pb2.CreateChatCompletionResponse:
        """Answer a conversation, whole."""
        chat = _with_stream(request.chat, stream=False)
        sink = ProtoChatSink(logprobs=chat.logprobs)
        await self._chat.run(chat, CONTEXT.get(), sink, start_meter(self._meters, CHAT_ROUTE))
        return sink.response()

    async def stream_chat_completion(
        self, request: chat_pb2.StreamChatCompletionRequest, context: Context
    ) -> None:
        """Answer a conversation piece by piece."""
        chat = _with_stream(request.chat, stream=True)
        meter = start_meter(self._meters, CHAT_ROUTE)
        usage = profile_for(chat.model).stream_usage(chat.stream_options)
        sink = ProtoChatStreamSink(self._pieces(), StreamForm.of(usage))

        async def run() -> None:
            await self._chat.run(chat, CONTEXT.get(), sink, meter)

        await deliver(sink, run, context.write, self._limits.max_stall_s)

    async def create_completion(
        self, request: chat_pb2.CreateCompletionRequest, _: Context
    ) -> chat_pb2.CreateCompletionResponse:
        """Continue texts, whole."""
        completion = _with_stream(request.completion, stream=False)
        sink = ProtoCompletionSink(logprobs=completion.HasField("logprobs"))
        meter = start_meter(self._meters, COMPLETIONS_ROUTE)
        await self._completion.run(completion, CONTEXT.get(), sink, meter)
        return sink.response()

    async def stream_completion(self, request: chat_pb2.StreamCompletionRequest, context: Context) -> None:
        """Continue texts piece by piece."""
        completion = _with_stream(request.completion, stream=True)
        meter = start_meter(self._meters, COMPLETIONS_ROUTE)
        # Running usage is for chats alone.
        form = StreamForm(usage=completion.stream_options.include_usage)
        sink = ProtoCompletionStreamSink(self._pieces(), form)

        async def run() -> None:
            await self._completion.run(completion, CONTEXT.get(), sink, meter)

        await deliver(sink, run, context.write, self._limits.max_stall_s)

    def _pieces(self) -> PieceBuffer:
        return PieceBuffer(self._limits.max_held_bytes)


def _with_stream(request: RequestT, *, stream: bool) -> RequestT:
    """The request with `stream` as the method has it; the caller's own message stays as it is."""
    if request.stream == stream:
        return request
    result = type(request)()
    result.CopyFrom(request)
    result.stream = stream
    return result
