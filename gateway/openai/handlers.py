"""Handlers of the OpenAI paths: parse, choose the sink, run the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from gateway.openai.chat_request import chat_request
from gateway.openai.chat_sinks import JsonChatSink, SseChatSink
from gateway.openai.completion_request import completion_request
from gateway.openai.completion_sinks import JsonCompletionSink, SseCompletionSink
from gateway.openai.parse import parse_body
from gateway.openai.sampling import stream_form
from gateway.openai.shapes import CHAT, COMPLETION
from gateway.whole import TEXT, answer, answer_json
from smg.errors import ModelNotFound, SmgError
from smg.pipelines.off_loop import LongLane, in_thread
from smg.pipelines.tools import is_forced
from smg.profiles import BASELINE, profile_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from gateway.reply import Header, Reply
    from gateway.request import HttpRequest
    from gateway.sse import KeepAlive
    from smg.pipelines.catalog import ModelCatalog
    from smg.pipelines.chat import ChatPipeline
    from smg.pipelines.completion import CompletionPipeline
    from smg.pipelines.meter import Meters, RequestMeter
    from smg.pipelines.sinks import AnswerSink
    from smg_proto.chat.v1 import chat_pb2, completion_pb2


MessageT = TypeVar("MessageT")
# Reading so much JSON takes about a millisecond.
INLINE_BODY_BYTES = 128 * 1024
# Longer ones take tens of milliseconds in single calls.
HUGE_BODY_BYTES = 2 * 1024 * 1024


class OpenAIHandlers:
    """The handlers and what they need."""

    def __init__(
        self,
        chat: ChatPipeline,
        completion: CompletionPipeline,
        catalog: ModelCatalog,
        meters: Meters,
        keep_alive: KeepAlive,
        more_of_models: Callable[[], Awaitable[dict[str, Any]]],
        *,
        tells_timing: bool = True,
    ) -> None:
        """Prepare.

        Args:
            chat: answers chats.
            completion: answers text completions.
            catalog: knows the models.
            meters: measure requests.
            keep_alive: keeps quiet streams open.
            more_of_models: makes what the list of models has beside OpenAI's own members.
            tells_timing: answers say in Server-Timing what took how long.
        """
        self._tells_timing = tells_timing
        self._chat = chat
        self._keep_alive = keep_alive
        self._completion = completion
        self._catalog = catalog
        self._meters = meters
        self._long_lane = LongLane()
        self._more_of_models = more_of_models

    async def chat(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/chat/completions."""
        meter = reply.meter = self._meters.start("chat", request.context, request.arrived_at)
        message = await off_loop_if_long(request, _chat_message, self._long_lane)
        meter.parsed()
        headers = self._answer_headers(request, meter, is_whole=not message.stream)
        if not message.stream:
            sink = JsonChatSink(reply, headers, logprobs=message.logprobs)
            await self._chat.run(message, request.context, sink, meter)
            await sink.written()
            return
        usage = profile_for(message.model).stream_usage(message.stream_options)
        form = stream_form(usage, is_call=is_forced(message))
        stream = SseChatSink(reply, headers, form)
        self._keep_alive.add(reply, stream.begin)
        with FailingInto(stream, reply):
            await self._chat.run(message, request.context, stream, meter)

    async def completions(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/completions."""
        meter = reply.meter = self._meters.start("completions", request.context, request.arrived_at)
        message = await off_loop_if_long(request, _completion_message, self._long_lane)
        meter.parsed()
        headers = self._answer_headers(request, meter, is_whole=not message.stream)
        if not message.stream:
            sink = JsonCompletionSink(reply, headers, logprobs=message.HasField("logprobs"))
            await self._completion.run(message, request.context, sink, meter)
            await sink.written()
            return
        stream = SseCompletionSink(
            reply,
            headers,
            stream_form(BASELINE.stream_usage(message.stream_options)),
            logprobs=message.HasField("logprobs"),
        )
        self._keep_alive.add(reply, stream.begin)
        with FailingInto(stream, reply):
            await self._completion.run(message, request.context, stream, meter)

    async def models(self, request: HttpRequest, reply: Reply) -> None:
        """GET /v1/models."""
        models = [_model(model_id) for model_id in self._catalog.model_ids()]
        if not models:
            answer(request, reply, 503, TEXT, b"No models available")
            return
        more = await self._more_of_models()
        answer_json(request, reply, {"object": "list", "data": models, **more})

    async def model(self, request: HttpRequest, reply: Reply) -> None:
        """GET /v1/models/{model}."""
        name = request.parameters["model"]
        model_id = self._catalog.canonical(name)
        if model_id not in self._catalog.model_ids():
            raise ModelNotFound(
                f"no worker serves the model {name[:200]!r}; GET /v1/models lists the served ones"
            )
        answer_json(request, reply, _model(model_id))

    def _answer_headers(
        self, request: HttpRequest, meter: RequestMeter, *, is_whole: bool
    ) -> Callable[[str], list[Header]]:
        """Makes the headers that every answer of a model has, once its worker is known."""

        def headers(worker_url: str) -> list[Header]:
            result = [(b"x-request-id", request.context.request_id.encode())]
            if worker_url:
                result.append((b"x-smg-routed-worker-id", worker_url.encode()))
                if request.context.note is not None:
                    result.append((b"x-smg-routing-reason", request.context.note.reason.encode()))
            if self._tells_timing:
                result.append((b"server-timing", meter.server_timing(is_whole=is_whole)))
            return result

        return headers


async def off_loop_if_long(
    request: HttpRequest, work: Callable[[HttpRequest], MessageT], lane: LongLane
) -> MessageT:
    """Read a body: here when it is short, in a thread when that would hold up everybody else, alone when it is huge."""
    size = len(request.body)
    if size <= INLINE_BODY_BYTES:
        return work(request)
    if size <= HUGE_BODY_BYTES:
        return await in_thread(work, request)
    return await lane.run(work, request)


def _chat_message(request: HttpRequest) -> chat_pb2.ChatRequest:
    return chat_request(*parse_body(request, CHAT))


def _completion_message(request: HttpRequest) -> completion_pb2.CompletionRequest:
    return completion_request(parse_body(request, COMPLETION)[0])


class FailingInto:
    """An error before the first event is an ordinary answer, unless a keep-alive comment has begun the stream.

    Written out, not made with contextmanager: every stream pays for it.
    """

    __slots__ = ("_reply", "_sink")

    def __init__(self, sink: AnswerSink, reply: Reply) -> None:
        self._sink = sink
        self._reply = reply

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or not isinstance(error, SmgError) or not self._reply.is_started:
            return False
        self._sink.fail(error)
        return True


def _model(model_id: str) -> dict[str, str | int]:
    return {"id": model_id, "object": "model", "created": 0, "owned_by": "self_hosted"}
