"""One response: what was said before, turns of the chat pipeline, tools, the store.

A response is kept before its client is told of its end, so that the next request finds it. A client that leaves
earlier ends the response: nothing of it is kept, and nothing is added to its conversation.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

from smg.errors import EngineError, InvalidRequest, SmgError, StorageFailed
from smg.pipelines.off_loop import off_loop
from smg.pipelines.server_tools import ServerTools
from smg.pipelines.tool_calls import MAX_CALLS, ToolCalls
from smg.pipelines.turn_sink import TurnSink
from smg.profiles import BASELINE
from smg.responses.approval import answered
from smg.responses.bodies import ResponseBody
from smg.responses.conversation import ChatMessages
from smg.responses.events import EventStream
from smg.responses.kept import json_array, kept_input, kept_output
from smg.responses.output import Output
from smg.responses.text_format import chat_format
from smg.responses.tool_choice import chat_choice, later_choice
from smg.responses.tools import client_tools
from smg.responses.turn import ServerCall
from smg.responses.usage import UsageSum
from smg.storage.records import StoredResponse
from smg_proto.chat.v1 import chat_pb2, options_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.mcp.config import ConfiguredServers
    from smg.mcp.pool import SessionPool
    from smg.pipelines.admission import Admission
    from smg.pipelines.catalog import ModelCatalog
    from smg.pipelines.chat import ChatPipeline
    from smg.pipelines.meter import RequestMeter
    from smg.pipelines.response_history import ResponseHistory
    from smg.pipelines.sinks import AnswerHead
    from smg.pipelines.tool_calls import MadeCall
    from smg.responses.approval import Approval
    from smg.responses.events import Outlet
    from smg.responses.request import ResponseCall
    from smg.responses.shapes import Json
    from smg.responses.turn import Turn
    from smg.storage.base import HistoryStore
    from smg.storage.records import StoredItem
    from smg.types.context import RequestContext

RESPONSE_PREFIX = "resp_"
_EXCEEDED: Json = {
    "status": "failed",
    "error": {
        "code": "max_tool_calls_exceeded",
        "message": f"The model asked for more than {MAX_CALLS} tool calls, which no response may make.",
    },
}


class ResponseFront(Protocol):
    """Who asked: what is told of the response while it comes about."""

    @property
    def outlet(self) -> Outlet | None:
        """Where events go; None where only the whole response is wanted."""
        ...

    def begin(self) -> None:
        """The first event of the model is here. What fails before this is raised instead."""
        ...


@dataclass(frozen=True, slots=True)
class ResponseParts:
    """What responses are made with.

    Attributes:
        turns: answers one turn.
        admission: bounds how many run; those in the background take their place when they begin.
        catalog: the models.
        history: reads what was said before.
        store: keeps what has ended.
        sessions: with the servers of tools.
        servers: that the operator has named.
    """

    turns: ChatPipeline
    admission: Admission
    catalog: ModelCatalog
    history: ResponseHistory
    store: HistoryStore
    sessions: SessionPool
    servers: ConfiguredServers


class _Prepared(NamedTuple):
    """A request that is ready to be answered.

    Attributes:
        kept: what will be kept of the input.
        messages: what the model is shown.
        approvals: the answers to requests for approval.
    """

    kept: list[StoredItem]
    messages: ChatMessages
    approvals: list[Approval]


class ResponseRun:
    """One response, from the request to its end. Made for one request; either run() or queue() and run_queued() once."""

    def __init__(
        self,
        parts: ResponseParts,
        call: ResponseCall,
        context: RequestContext,
        front: ResponseFront,
        new_meter: Callable[[], RequestMeter],
        now: Callable[[], float],
        *,
        is_background: bool = False,
    ) -> None:
        self._parts = parts
        self._call = call
        self._context = context
        self._front = front
        self._new_meter = new_meter
        self._now = now
        self._is_open = False
        self._usage = UsageSum()
        self._lists: list[tuple[str, list[Json]]] = []
        self._status = "in_progress"
        self._sink: TurnSink | None = None
        self._prepared_input: _Prepared | None = None
        outlet = front.outlet
        self._output = Output(
            client_tools(call.tools),
            EventStream(outlet) if outlet is not None else None,
            with_encrypted=call.with_encrypted,
        )
        self._body = ResponseBody(
            call, RESPONSE_PREFIX + secrets.token_hex(24), int(now()), is_background=is_background
        )

    @property
    def id(self) -> str:
        """The response's id."""
        return self._body.id

    async def run(self) -> Json:
        """From the request to the last event.

        Raises:
            SmgError: nothing has been told of the response yet, or it cannot be kept.
        """
        prepared = await self._prepare()
        return await self._end(await self._answer(prepared), prepared.kept)

    async def queue(self) -> Json:
        """Check the request, and keep the response as one that waits. Returns its object.

        Raises:
            SmgError: the request is refused, or the store does not answer.
        """
        self._prepared_input = await self._prepare()
        self._status = "queued"
        self._output.emit("response.created", {"response": self._body.begun(self._status)})
        self._output.emit("response.queued", {"response": self._body.running(self._status)})
        return await self._keep_running(self._prepared_input.kept)

    async def run_queued(self) -> Json:
        """What queue() has begun, to the last event. Whatever happens is the response's end, cancelling too.

        Raises:
            StorageFailed: the end cannot be kept.
        """
        prepared = self._prepared_input
        assert prepared is not None  # noqa: S101 - queue() comes first
        try:
            async with self._parts.admission.permit():
                self._status = "in_progress"
                self._is_open = True
                self._output.emit("response.in_progress", {"response": self._body.running(self._status)})
                await self._keep_running(prepared.kept)
                ended = await self._answer(prepared)
        except SmgError as error:
            self._output.close_all()
            ended = _failed(error)
        except asyncio.CancelledError:
            if self._sink is not None:
                self._sink.turn.end(has_failed=True)
            self._output.close_all()
            ended = {"status": "cancelled"}
        return await self._end(ended, prepared.kept)

    async def _prepare(self) -> _Prepared:
        call = self._call
        model = await self._parts.catalog.resolve(call.message.model)
        # An alias stays the caller's word: what is told, and kept, is the model behind it.
        self._body.model = model.id
        before = await self._parts.history.before(self._context.caller.tenant, call)
        # An item takes some microseconds, like a kilobyte of the request.
        size = call.message.ByteSize() + 1000 * len(before)
        prepared = await off_loop(partial(self._prepared, before), size=size)
        if model.formats.is_harmony:
            prepared.messages.check_answers()
        return prepared

    async def _answer(self, prepared: _Prepared) -> Json:
        """Turns and calls. Returns how the response ended."""
        call, tenant, box = self._call, self._context.caller.tenant, self._output.toolbox
        async with ServerTools(self._parts.sessions, self._parts.servers, tenant, call.tools, box) as tools:
            self._lists = tools.lists
            limit = call.message.max_tool_calls if call.message.HasField("max_tool_calls") else None
            calls = ToolCalls(self._output, tools, limit)
            await self._approved(prepared.approvals, tools, calls, prepared.messages)
            return await self._turns(prepared.messages, tools, calls)

    def _prepared(self, before: list[Json]) -> _Prepared:
        call = self._call
        messages = ChatMessages()
        if call.message.instructions:
            messages.instruct(call.message.instructions)
        messages.add(before)
        messages.add(call.items)
        return _Prepared(
            kept_input(call.items, self._body.created_at), messages, answered(before, call.items)
        )

    async def _approved(
        self, approvals: list[Approval], tools: ServerTools, calls: ToolCalls, messages: ChatMessages
    ) -> None:
        """Make the calls that were approved, and tell the model of those that were not.

        Raises:
            InvalidRequest: the request declares no tool of an approved call.
        """
        approved: list[ServerCall] = []
        for request, is_given, reason in approvals:
            name = tools.name_of(request["server_label"], request["name"])
            if not is_given:
                told = f"The user has declined this call{f': {reason}' if reason else ''}."
                messages.answered_call(request["id"], name or request["name"], request["arguments"], told)
            elif name is None:
                raise InvalidRequest(
                    f"input: tools has no {request['name'][:80]!r} of the server "
                    f"{request['server_label'][:80]!r}, whose call was approved",
                    param="tools",
                )
            else:
                origin = self._output.toolbox.origin(name)
                approved.append(ServerCall(request["id"], name, origin, request["arguments"]))
        if approved:
            self._opened(None)
            made = await calls.make(approved, [call.call_id for call in approved])
            _tell(messages, made)

    async def _turns(self, messages: ChatMessages, tools: ServerTools, calls: ToolCalls) -> Json:
        """Turn after turn, until one ends the response. Returns how it ended."""
        choice = chat_choice(self._call.tool_choice, self._output.toolbox)
        number = 0
        while True:
            sink = TurnSink(self._output, self._opened, with_logprobs=self._call.with_logprobs)
            self._sink = sink
            failure = await self._turn(self._request(messages, choice, number), sink)
            is_cut = sink.finish_reason == "length"
            sink.turn.end(is_cut=is_cut, has_failed=failure is not None)
            self._sink = None
            if failure is not None:
                return _failed(failure)
            head = sink.head
            if head is not None:
                counts = head.usage
                self._usage.add(
                    counts.prompt_tokens,
                    counts.completion_tokens,
                    counts.cached_tokens,
                    counts.reasoning_tokens,
                )
            if is_cut:
                return {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
            if not await self._served(sink.turn, messages, tools, calls):
                return (
                    dict(_EXCEEDED)
                    if calls.is_over and not calls.is_clients_limit
                    else {"status": "completed"}
                )
            choice = later_choice(choice)
            number += 1

    async def _served(self, turn: Turn, messages: ChatMessages, tools: ServerTools, calls: ToolCalls) -> bool:
        """Make the calls of a turn that are for servers. Returns whether the model gets another turn."""
        asking = [call for call in turn.server_calls if tools.needs_approval(call.name)]
        free = [call for call in turn.server_calls if not tools.needs_approval(call.name)]
        if free:
            messages.said(turn.reasoning_text, turn.message_text)
            _tell(messages, await calls.make(free))
        calls.ask(asking)
        return bool(free) and not asking and not turn.has_client_calls and not calls.is_over

    async def _turn(self, request: chat_pb2.ChatRequest, sink: TurnSink) -> SmgError | None:
        """One turn. Returns what it failed with, where the client must be told in an event.

        Raises:
            SmgError: it failed, and can be answered with the error alone.
        """
        is_first = not self._is_open
        try:
            # The contracts of vendors are those of their chat completions.
            await self._parts.turns.run(request, self._context, sink, self._new_meter(), BASELINE)
        except SmgError as error:
            if not self._is_open:
                raise
            return error
        if sink.error is not None and is_first and self._front.outlet is None:
            raise sink.error
        return sink.error

    def _opened(self, head: AnswerHead | None) -> None:
        """The first event of the model, or of a call that was approved: from here on everything is an event."""
        del head
        if not self._is_open:
            self._is_open = True
            self._front.begin()
            self._output.emit("response.created", {"response": self._body.begun(self._status)})
            self._output.emit("response.in_progress", {"response": self._body.running(self._status)})
        lists, self._lists = self._lists, []
        for label, tools in lists:
            self._output.list_tools(label, tools)

    def _request(
        self, messages: ChatMessages, choice: options_pb2.ToolChoice | None, number: int
    ) -> chat_pb2.ChatRequest:
        call, message = self._call, self._call.message
        rid = message.request_id or self._body.id
        request = chat_pb2.ChatRequest(
            model=message.model,
            messages=messages.messages,
            sampling=message.sampling,
            stream=self._front.outlet is not None,
            tools=self._output.toolbox.functions,
            tool_choice=choice,
            response_format=chat_format(call.text),
            rid=f"{rid}-{number}" if number else rid,
        )
        if call.with_logprobs:
            request.logprobs = True
            request.top_logprobs = message.top_logprobs
        if message.HasField("parallel_tool_calls"):
            request.parallel_tool_calls = message.parallel_tool_calls
        if call.effort:
            request.reasoning_effort = call.effort
        if message.HasField("user"):
            request.user = message.user
        return request

    async def _end(self, ended: Json, kept: Sequence[StoredItem]) -> Json:
        """Keep the response, then tell its end."""
        if self._front.outlet is None:
            self._output.calls_last()
        ended["usage"] = self._usage.shown()
        full = self._full(ended)
        if self._call.stores:
            try:
                await self._keep(full, kept)
            except StorageFailed as error:
                if self._front.outlet is None:
                    raise
                full = self._full({**ended, **_failed(error)})
        stream = self._output.stream
        if stream is not None:
            stream.emit(f"response.{full['status']}", {"response": self._body.streamed(full)})
            stream.outlet.flush()
        return full

    async def _keep_running(self, kept: Sequence[StoredItem]) -> Json:
        """Keep what there is so far, so that others can see how far it is."""
        body = self._full({"status": self._status})
        await self._put(body, kept, ())
        return body

    def _full(self, ended: Json) -> Json:
        has_ended = ended["status"] not in ("queued", "in_progress")
        return self._body.full(ended, self._output.items, int(self._now()) if has_ended else None)

    async def _keep(self, full: Json, kept: Sequence[StoredItem]) -> None:
        """Keep the response and its part of the conversation, whole even if the client leaves meanwhile."""
        # A response that somebody has stopped is no part of the conversation.
        is_part = self._call.message.conversation and full["status"] != "cancelled"
        items = [*kept, *kept_output(full["output"], self._body.created_at)] if is_part else ()
        await self._put(full, kept, items)

    async def _put(self, full: Json, kept: Sequence[StoredItem], items: Sequence[StoredItem]) -> None:
        message = self._call.message
        stored = StoredResponse(
            self._body.id,
            self._body.created_at,
            orjson.dumps(full).decode(),
            json_array(kept),
            message.previous_response_id,
            message.conversation,
        )
        writing = asyncio.ensure_future(
            self._parts.store.put_response(self._context.caller.tenant, stored, items)
        )
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait((writing,))
            raise


def _tell(messages: ChatMessages, made: list[MadeCall]) -> None:
    """Tell the model what its calls have brought."""
    for call, result in made:
        messages.answered_call(call.call_id, call.name, call.arguments, result.content_json)


def _failed(error: SmgError) -> Json:
    # What an engine says once it has begun comes over its stream; S1 calls that so.
    code = "stream_error" if isinstance(error, EngineError) else error.code
    told: dict[str, Any] = {"code": code, "message": error.message}
    return {"status": "failed", "error": told}
