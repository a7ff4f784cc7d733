"""smg.responses.v1.ResponsesService: the pipeline behind POST /v1/responses, as typed calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from smg.pipelines.turn_meters import TurnMeters
from smg.services.call import CONTEXT, start_meter
from smg.services.event_buffer import EventBuffer
from smg.services.methods import RESPONSES_ROUTE, RESPONSES_SERVICE
from smg.services.rpc import add_service, stream_method, unary_method
from smg.services.streams import deliver
from smg_proto.responses.v1 import responses_pb2 as pb

if TYPE_CHECKING:
    import grpc.aio

    from smg.pipelines.background import BackgroundResponses
    from smg.pipelines.meter import Meters
    from smg.pipelines.responses import ResponsesPipeline
    from smg.pipelines.stored_responses import StoredResponses
    from smg.responses.events import Outlet
    from smg.services.chat import StreamLimits
    from smg.services.rpc import Context


class _Front:
    """Who has called."""

    def __init__(self, outlet: Outlet | None = None) -> None:
        self.outlet = outlet

    def begin(self) -> None:
        """The call's own head leaves with its first message."""


class ResponsesService:
    """The methods and what they need."""

    def __init__(
        self,
        responses: ResponsesPipeline,
        stored: StoredResponses,
        background: BackgroundResponses,
        meters: Meters,
        limits: StreamLimits,
    ) -> None:
        self._responses = responses
        self._stored = stored
        self._background = background
        self._meters = meters
        self._limits = limits

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        methods = {
            "CreateResponse": unary_method(self.create, pb.CreateResponseRequest),
            "StreamResponse": stream_method(self.stream, pb.StreamResponseRequest),
            "GetResponse": unary_method(self.get, pb.GetResponseRequest),
            "DeleteResponse": unary_method(self.delete, pb.DeleteResponseRequest),
            "CancelResponse": unary_method(self.cancel, pb.CancelResponseRequest),
            "ListInputItems": unary_method(self.input_items, pb.ListInputItemsRequest),
        }
        add_service(server, RESPONSES_SERVICE, methods)

    async def create(self, request: pb.CreateResponseRequest, _: Context) -> pb.CreateResponseResponse:
        """Answer, whole."""
        turns = self._turn_meters()
        if request.response.background and self._background.is_on:
            started = await self._background.start(request.response, CONTEXT.get(), turns, stream=False)
            body = started.body
        else:
            body = await self._responses.create(request.response, CONTEXT.get(), _Front(), turns)
        return pb.CreateResponseResponse(
            id=body["id"], status=body["status"], response_json=orjson.dumps(body).decode()
        )

    async def stream(self, request: pb.StreamResponseRequest, context: Context) -> None:
        """Answer event by event."""
        turns = self._turn_meters()
        events = EventBuffer(self._limits.max_held_bytes)

        async def run() -> None:
            asked = request.response
            if not (asked.background and self._background.is_on):
                await self._responses.create(asked, CONTEXT.get(), _Front(events), turns)
                return
            _, log = await self._background.start(asked, CONTEXT.get(), turns, stream=True)
            if log is not None:
                await log.follow(events)

        await deliver(events, run, context.write, self._limits.max_stall_s)

    async def get(self, request: pb.GetResponseRequest, _: Context) -> pb.GetResponseResponse:
        """A stored response."""
        found = await self._stored.get(_tenant(), request.id)
        return pb.GetResponseResponse(response_json=found.body_json)

    async def delete(self, request: pb.DeleteResponseRequest, _: Context) -> pb.DeleteResponseResponse:
        """Forget one."""
        await self._stored.delete(_tenant(), request.id)
        return pb.DeleteResponseResponse()

    async def cancel(self, request: pb.CancelResponseRequest, _: Context) -> pb.CancelResponseResponse:
        """Stop one."""
        found = await self._stored.cancel(_tenant(), request.id)
        return pb.CancelResponseResponse(response_json=found.body_json)

    async def input_items(self, request: pb.ListInputItemsRequest, _: Context) -> pb.ListInputItemsResponse:
        """What was sent with one."""
        found = await self._stored.get(_tenant(), request.id)
        items = orjson.loads(found.input_json)
        return pb.ListInputItemsResponse(items_json=[orjson.dumps(item).decode() for item in items])

    def _turn_meters(self) -> TurnMeters:
        return TurnMeters(self._meters, start_meter(self._meters, RESPONSES_ROUTE), CONTEXT.get())


def _tenant() -> str:
    return CONTEXT.get().caller.tenant
