"""One response: what was said before, turns of the chat pipeline, tools, the store.

A response is kept before its client is told of its end, so that the next request finds it. A client that leaves
earlier ends the response: nothing of it is kept, and nothing is added to its conversation.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import SmgError, StorageFailed
from smg.pipelines.off_loop import off_loop
from smg.pipelines.response_keeper import ResponseKeeper
from smg.pipelines.response_turns import ResponseTurns, failed
from smg.pipelines.server_tools import ServerTools
from smg.responses.approval import answered
from smg.responses.bodies import ResponseBody
from smg.responses.conversation import ChatMessages
from smg.responses.events import EventStream
from smg.responses.kept import kept_input
from smg.responses.output import Output
from smg.responses.tools import client_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.pipelines.meter import RequestMeter
    from smg.pipelines.response_parts import ResponseFront, ResponseParts
    from smg.responses.approval import Approval
    from smg.responses.request import ResponseCall
    from smg.responses.shapes import Json
    from smg.storage.records import StoredItem
    from smg.types.context import RequestContext

RESPONSE_PREFIX = "resp_"


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
    """One response, from the request to its end. Made for one request; either run() or queue() and run_queued() once.

    Attributes:
        is_ending: how it ended is known, and is being kept and told.
    """

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
        self._now = now
        self._status = "in_progress"
        self._prepared_input: _Prepared | None = None
        self.is_ending = False
        outlet = front.outlet
        self._output = Output(
            client_tools(call.tools),
            EventStream(outlet) if outlet is not None else None,
            with_encrypted=call.with_encrypted,
        )
        self._body = ResponseBody(
            call, RESPONSE_PREFIX + secrets.token_hex(24), int(now()), is_background=is_background
        )
        self._turns = ResponseTurns(
            parts.turns, call, context, self._output, self._body.id, new_meter, self._opened
        )
        message = call.message
        self._keeper = ResponseKeeper(
            parts.store,
            context.caller.tenant,
            message.previous_response_id,
            message.conversation,
            parts.lease_s,
            now,
            parts.on_write,
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
        full = self._full({"status": self._status})
        await self._keeper.begin(full, self._prepared_input.kept)
        return full

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
                self._turns.is_open = True
                self._output.emit("response.in_progress", {"response": self._body.running(self._status)})
                goes_on = await self._keeper.go_on(self._full({"status": self._status}), prepared.kept)
                ended = await self._answer(prepared) if goes_on else {"status": "cancelled"}
        except SmgError as error:
            self._output.close_all()
            ended = failed(error)
        except asyncio.CancelledError:
            self._turns.stop()
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
            return await self._turns.run(prepared.messages, prepared.approvals, tools)

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

    def _opened(self) -> None:
        self._front.begin()
        self._output.emit("response.created", {"response": self._body.begun(self._status)})
        self._output.emit("response.in_progress", {"response": self._body.running(self._status)})

    async def _end(self, ended: Json, kept: Sequence[StoredItem]) -> Json:
        """Keep the response, then tell its end. Once this has begun, cancelling would lose the last event."""
        self.is_ending = True
        if self._front.outlet is None:
            self._output.calls_last()
        ended["usage"] = self._turns.usage.shown()
        full = self._full(ended)
        if self._call.stores:
            try:
                full = await self._keeper.end(full, kept)
            except StorageFailed as error:
                if self._front.outlet is None:
                    raise
                full = self._full({**ended, **failed(error)})
        stream = self._output.stream
        if stream is not None:
            stream.emit(f"response.{full['status']}", {"response": self._body.streamed(full)})
            stream.outlet.flush()
        return full

    def _full(self, ended: Json) -> Json:
        has_ended = ended["status"] not in ("queued", "in_progress")
        return self._body.full(ended, self._output.items, int(self._now()) if has_ended else None)
