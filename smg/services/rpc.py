"""Typed doors to grpc.aio's server side, whose stubs leave the message types open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence

    from google.protobuf.message import Message

    # What grpc.aio hands to a method. The message types are checked where methods are made, below.
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]

RequestT = TypeVar("RequestT", bound="Message")

_grpc: Any = grpc
ServerInterceptor: Any = grpc.aio.ServerInterceptor
"""Base class of interceptors; the stubs describe the synchronous server's."""


def unary_method(
    behavior: Callable[[RequestT, Context], Coroutine[Any, Any, Message]], request: type[RequestT]
) -> Handler:
    """A method with one answer."""
    return _grpc.unary_unary_rpc_method_handler(behavior, request.FromString, _bytes)


def stream_method(
    behavior: Callable[[RequestT, Context], Coroutine[Any, Any, None]], request: type[RequestT]
) -> Handler:
    """A method that writes its answers to its context."""
    return _grpc.unary_stream_rpc_method_handler(behavior, request.FromString, _bytes)


def duplex_method(
    behavior: Callable[[AsyncIterator[RequestT], Context], Coroutine[Any, Any, None]], request: type[RequestT]
) -> Handler:
    """A method that reads requests as they come and writes its answers to its context."""
    return _grpc.stream_stream_rpc_method_handler(behavior, request.FromString, _bytes)


def unparsed_duplex(behavior: Callable[[AsyncIterator[bytes], Context], Coroutine[Any, Any, Any]]) -> Handler:
    """A method that reads and writes streams, whose behavior gets the requests' bytes."""
    return _grpc.stream_stream_rpc_method_handler(behavior, None, _bytes)


def unparsed(handler: Handler, behavior: Callable[[bytes, Context], Coroutine[Any, Any, Any]]) -> Handler:
    """A method of the same kind whose behavior gets the request's bytes. One answer, or a stream of them."""
    if handler.response_streaming:
        return _grpc.unary_stream_rpc_method_handler(behavior, None, _bytes)
    return _grpc.unary_unary_rpc_method_handler(behavior, None, _bytes)


def unread(behavior: Callable[[object, Context], Coroutine[Any, Any, None]]) -> Handler:
    """A method that starts before a message has arrived, and never asks for one. Fits calls of every kind."""
    return _grpc.stream_stream_rpc_method_handler(behavior)


def new_server(interceptors: Sequence[object], options: Sequence[tuple[str, int]]) -> grpc.aio.Server:
    """A server without services and ports."""
    aio: Any = grpc.aio
    return aio.server(interceptors=tuple(interceptors), options=list(options))


def add_service(server: grpc.aio.Server, name: str, methods: Mapping[str, Handler]) -> None:
    """Register a service."""
    handlers = _grpc.method_handlers_generic_handler(name, dict(methods))
    server.add_generic_rpc_handlers((handlers,))  # pyright: ignore[reportUnknownMemberType] - partial stubs


def _bytes(message: Message) -> bytes:
    return message.SerializeToString()
