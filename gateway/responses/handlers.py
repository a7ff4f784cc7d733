"""Handlers of /v1/responses: parse, run the pipeline, write what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import orjson

from gateway.openai.handlers import off_loop_if_long
from gateway.openai.parse import parse_body
from gateway.responses.request import response_request
from gateway.responses.shapes import RESPONSE
from gateway.responses.stream import SseOutlet
from gateway.whole import JSON, answer, answer_json
from smg.errors import InvalidRequest, SmgError
from smg.pipelines.off_loop import LongLane
from smg.pipelines.turn_meters import TurnMeters

if TYPE_CHECKING:
    from gateway.reply import Reply
    from gateway.request import HttpRequest
    from gateway.sse import KeepAlive
    from smg.pipelines.background import BackgroundResponses
    from smg.pipelines.event_log import EventLog
    from smg.pipelines.meter import Meters
    from smg.pipelines.responses import ResponsesPipeline
    from smg.pipelines.stored_responses import StoredResponses
    from smg_proto.responses.v1 import responses_pb2


class _WholeFront:
    """Waits for the whole response."""

    outlet = None

    def begin(self) -> None:
        """Nothing is sent before the end."""


class _StreamFront:
    """Takes the events."""

    def __init__(self, outlet: SseOutlet) -> None:
        self.outlet = outlet

    def begin(self) -> None:
        """Start the stream."""
        self.outlet.begin()


class ResponseHandlers:
    """The handlers and what they need."""

    def __init__(
        self,
        responses: ResponsesPipeline,
        stored: StoredResponses,
        background: BackgroundResponses,
        meters: Meters,
        keep_alive: KeepAlive,
    ) -> None:
        self._responses = responses
        self._stored = stored
        self._background = background
        self._meters = meters
        self._keep_alive = keep_alive
        self._long_lane = LongLane()

    async def create(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/responses."""
        meter = reply.meter = self._meters.start("responses", request.context, request.arrived_at)
        message, stream = await off_loop_if_long(request, _message, self._long_lane)
        meter.parsed()
        turns = TurnMeters(self._meters, meter, request.context)
        if message.background and self._background.is_on:
            body, log = await self._background.start(message, request.context, turns, stream=stream)
            if log is None:
                answer(request, reply, 200, JSON, orjson.dumps(body))
            else:
                await self._follow(request, reply, log, -1)
            return
        if not stream:
            body = await self._responses.create(message, request.context, _WholeFront(), turns)
            answer(request, reply, 200, JSON, orjson.dumps(body))
            return
        outlet = _outlet(request, reply)
        self._keep_alive.add(reply, outlet.begin)
        try:
            await self._responses.create(message, request.context, _StreamFront(outlet), turns)
        except SmgError as error:
            if not reply.is_started:
                raise
            outlet.fail(error)
        else:
            outlet.end()

    async def get(self, request: HttpRequest, reply: Reply) -> None:
        """GET /v1/responses/{id}; with stream=true its events, behind the one of the number starting_after."""
        query = dict(parse_qsl(request.query))
        if query.get("stream") == "true":
            log = await self._stored.log(request.context.caller.tenant, request.parameters["id"])
            await self._follow(request, reply, log, _number(query.get("starting_after", "-1")))
            return
        found = await self._stored.get(request.context.caller.tenant, request.parameters["id"])
        answer(request, reply, 200, JSON, found.body_json.encode())

    async def delete(self, request: HttpRequest, reply: Reply) -> None:
        """DELETE /v1/responses/{id}."""
        response_id = request.parameters["id"]
        await self._stored.delete(request.context.caller.tenant, response_id)
        answer_json(request, reply, {"id": response_id, "object": "response.deleted", "deleted": True})

    async def cancel(self, request: HttpRequest, reply: Reply) -> None:
        """POST /v1/responses/{id}/cancel."""
        found = await self._stored.cancel(request.context.caller.tenant, request.parameters["id"])
        answer(request, reply, 200, JSON, found.body_json.encode())

    async def input_items(self, request: HttpRequest, reply: Reply) -> None:
        """GET /v1/responses/{id}/input_items."""
        found = await self._stored.get(request.context.caller.tenant, request.parameters["id"])
        items = orjson.loads(found.input_json)
        listed = {
            "object": "list",
            "data": items,
            "first_id": items[0]["id"] if items else None,
            "last_id": items[-1]["id"] if items else None,
            "has_more": False,
        }
        answer_json(request, reply, listed)

    async def _follow(self, request: HttpRequest, reply: Reply, log: EventLog, after: int) -> None:
        outlet = _outlet(request, reply)
        self._keep_alive.add(reply, outlet.begin)
        await log.follow(_Beginning(outlet), after)
        outlet.begin()
        outlet.end()


class _Beginning:
    """Starts a stream with the first event that is passed on."""

    def __init__(self, outlet: SseOutlet) -> None:
        self._outlet = outlet
        self.flush = outlet.flush
        self.is_behind = outlet.is_behind

    def event(self, kind: str, number: int, data: bytes) -> None:
        """Pass an event on."""
        self._outlet.begin()
        self._outlet.event(kind, number, data)


def _outlet(request: HttpRequest, reply: Reply) -> SseOutlet:
    # Turns may run on different workers: no header names one.
    return SseOutlet(reply, [(b"x-request-id", request.context.request_id.encode())])


def _number(text: str) -> int:
    if not text.lstrip("-").isdecimal() or not text.isascii() or len(text) > 9:
        raise InvalidRequest(
            f"starting_after is {text[:40]!r}; it must be the number of an event", param="starting_after"
        )
    return max(-1, int(text))


def _message(request: HttpRequest) -> tuple[responses_pb2.ResponseRequest, bool]:
    shape, data = parse_body(request, RESPONSE)
    return response_request(shape, data), bool(shape.get("stream"))
