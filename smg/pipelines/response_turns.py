"""The turns of one response: the model speaks, its calls of servers are made, and it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg.errors import EngineError, InvalidRequest, SmgError
from smg.pipelines.tool_calls import MAX_CALLS, ToolCalls
from smg.pipelines.turn_sink import TurnSink
from smg.profiles import BASELINE
from smg.responses.text_format import chat_format
from smg.responses.tool_choice import chat_choice, later_choice
from smg.responses.turn import ServerCall
from smg.responses.usage import UsageSum
from smg_proto.chat.v1 import chat_pb2, options_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.pipelines.chat import ChatPipeline
    from smg.pipelines.meter import RequestMeter
    from smg.pipelines.server_tools import ServerTools
    from smg.pipelines.sinks import AnswerHead
    from smg.pipelines.tool_calls import MadeCall
    from smg.responses.approval import Approval
    from smg.responses.conversation import ChatMessages
    from smg.responses.output import Output
    from smg.responses.request import ResponseCall
    from smg.responses.shapes import Json
    from smg.responses.turn import Turn
    from smg.types.context import RequestContext

_EXCEEDED: Json = {
    "status": "failed",
    "error": {
        "code": "max_tool_calls_exceeded",
        "message": f"The model asked for more than {MAX_CALLS} tool calls, which no response may make.",
    },
}


class ResponseTurns:
    """The turns of one response.

    Attributes:
        usage: of all turns so far.
        is_open: the first event is told; what fails from here on is an event as well.
    """

    def __init__(
        self,
        chat: ChatPipeline,
        call: ResponseCall,
        context: RequestContext,
        output: Output,
        response_id: str,
        new_meter: Callable[[], RequestMeter],
        on_open: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            chat: answers one turn.
            call: what was asked for.
            context: who asks.
            output: where items go.
            response_id: names the turns to engines, where the request has no name of its own.
            new_meter: makes a meter for each turn.
            on_open: called before the first event of the model, or of a call that was approved.
        """
        self._chat = chat
        self._call = call
        self._context = context
        self._output = output
        self._response_id = response_id
        self._new_meter = new_meter
        self._on_open = on_open
        self.usage = UsageSum()
        self.is_open = False
        self._lists: list[tuple[str, list[Json]]] = []
        self._sink: TurnSink | None = None

    async def run(self, messages: ChatMessages, approvals: list[Approval], tools: ServerTools) -> Json:
        """The calls that were approved, then turns until one ends the response. Returns how it ended.

        Raises:
            SmgError: it failed before the first event.
        """
        self._lists = tools.lists
        limit = self._call.message.max_tool_calls if self._call.message.HasField("max_tool_calls") else None
        calls = ToolCalls(self._output, tools, limit)
        await self._approved(approvals, tools, calls, messages)
        return await self._turns(messages, tools, calls)

    def stop(self) -> None:
        """End what is open of a turn that was stopped."""
        if self._sink is not None:
            self._sink.turn.end(has_failed=True)
        self._output.close_all()

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
                return failed(failure)
            head = sink.head
            if head is not None:
                counts = head.usage
                self.usage.add(
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
        is_first = not self.is_open
        try:
            # The contracts of vendors are those of their chat completions.
            await self._chat.run(request, self._context, sink, self._new_meter(), BASELINE)
        except SmgError as error:
            if not self.is_open:
                raise
            return error
        if sink.error is not None and is_first and self._output.stream is None:
            raise sink.error
        return sink.error

    def _opened(self, head: AnswerHead | None) -> None:
        """The first event of the model, or of a call that was approved: from here on everything is an event."""
        del head
        if not self.is_open:
            self.is_open = True
            self._on_open()
        lists, self._lists = self._lists, []
        for label, tools in lists:
            self._output.list_tools(label, tools)

    def _request(
        self, messages: ChatMessages, choice: options_pb2.ToolChoice | None, number: int
    ) -> chat_pb2.ChatRequest:
        call, message = self._call, self._call.message
        rid = message.request_id or self._response_id
        request = chat_pb2.ChatRequest(
            model=message.model,
            messages=messages.messages,
            sampling=message.sampling,
            stream=self._output.stream is not None,
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


def failed(error: SmgError) -> Json:
    """How a response ends that has failed with an error."""
    # What an engine says once it has begun comes over its stream; S1 calls that so.
    code = "stream_error" if isinstance(error, EngineError) else error.code
    told: dict[str, Any] = {"code": code, "message": error.message}
    return {"status": "failed", "error": told}


def _tell(messages: ChatMessages, made: list[MadeCall]) -> None:
    """Tell the model what its calls have brought."""
    for call, result in made:
        messages.answered_call(call.call_id, call.name, call.arguments, result.content_json)
