"""smg.edge.v1.HttpEdgeService: each call is one HTTP request for the application.

A client that leaves cancels its call, and with it whatever answers it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.api import httpbody_pb2

from gateway.edge.connection import EdgeConnection, answer_metadata, arriving_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.app import Exchange, GatewayApp
    from gateway.arriving import ArrivingRequest

    Context = grpc.aio.ServicerContext[Any, Any]

logger = logging.getLogger(__name__)

SERVICE = "smg.edge.v1.HttpEdgeService"
# A status queues behind what a client has not read; nobody waits for one that does not read at all.
_STATUS_WAIT_S = 5.0

_grpc: Any = grpc


class HttpEdgeService:
    """The service. One for a server."""

    def __init__(self, app: GatewayApp) -> None:
        self._app = app

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        read, write = httpbody_pb2.HttpBody.FromString, httpbody_pb2.HttpBody.SerializeToString
        methods = {
            "Call": _grpc.unary_stream_rpc_method_handler(self.call, read, write),
            "Upload": _grpc.stream_stream_rpc_method_handler(self.upload, read, write),
        }
        handlers = _grpc.method_handlers_generic_handler(SERVICE, methods)
        server.add_generic_rpc_handlers((handlers,))  # pyright: ignore[reportUnknownMemberType] - partial stubs

    async def call(self, body: httpbody_pb2.HttpBody, context: Context) -> None:
        """Answer a request whose body is in one message."""
        data = body.data
        request = arriving_request(context.invocation_metadata(), body.content_type, len(data) or None)
        connection = EdgeConnection(takes_body=request.method != "HEAD", client=context.peer())
        exchange = self._app.begin(request, connection)
        if not exchange.reply.is_ended:
            _take(exchange, data)
        await _answer(exchange, connection, context)

    async def upload(self, bodies: AsyncIterator[httpbody_pb2.HttpBody], context: Context) -> None:
        """Answer a request whose body comes in pieces."""
        first = await anext(aiter(bodies), httpbody_pb2.HttpBody())
        request = arriving_request(context.invocation_metadata(), first.content_type, None)
        connection = EdgeConnection(takes_body=request.method != "HEAD", client=context.peer())
        exchange = self._app.begin(request, connection)
        try:
            await _gather(exchange, request, first.data, bodies)
        except asyncio.CancelledError:
            exchange.left()
            raise
        await _answer(exchange, connection, context)


def _take(exchange: Exchange, body: bytes) -> None:
    if len(body) > exchange.max_body_bytes:
        exchange.refuse_body()
    else:
        exchange.start(body)


async def _gather(
    exchange: Exchange,
    request: ArrivingRequest,
    first: bytes,
    rest: AsyncIterator[httpbody_pb2.HttpBody],
) -> None:
    """Collect a body, no more of it than is taken."""
    if exchange.reply.is_ended:
        return
    request.pieces.append(first)
    request.size = len(first)
    async for body in rest:
        request.size += len(body.data)
        if request.size > exchange.max_body_bytes:
            break
        request.pieces.append(body.data)
    if request.size > exchange.max_body_bytes:
        request.pieces.clear()
        exchange.refuse_body()
    else:
        exchange.start(request.body())


async def _answer(exchange: Exchange, connection: EdgeConnection, context: Context) -> None:
    """Send what the exchange says, until it is said or the client leaves."""
    try:
        await _send(connection, context)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not connection.is_cut or task is None:
            exchange.left()
            raise
        task.uncancel()
    if connection.is_cut:
        # A client notices that the end is missing.
        try:
            async with asyncio.timeout(_STATUS_WAIT_S):
                await context.abort(grpc.StatusCode.ABORTED, "the answer was not finished")
        except TimeoutError:
            logger.debug("a client does not read its status")


async def _send(connection: EdgeConnection, context: Context) -> None:
    reply = connection.reply
    data = await reply.something()
    if reply.is_dropped or not reply.is_started:
        return
    metadata, content_type = answer_metadata(reply)
    await context.send_initial_metadata(metadata)
    # Envoy takes the content type from the first message, and waits for one however empty the body is.
    await context.write(httpbody_pb2.HttpBody(content_type=content_type, data=data))
    while data:
        data = await reply.something()
        if data:
            await context.write(httpbody_pb2.HttpBody(data=data))
