"""One session on smg.engine.v1, from the connection to its end: opens it, reads it, writes to it.

It knows the protocol and nothing of requests: events go to a function, commands come from an outbox.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio

from smg.workers.base import ProtocolMismatch
from smg.workers.channel import words
from smg.workers.connected import ConnectionLost
from smg_proto.engine.v1 import card_pb2, engine_pb2, engine_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.workers.outbox import Outbox

    _Call = grpc.aio.StreamStreamCall[bytes, engine_pb2.SessionEvent]

SERVICE = "smg.engine.v1.EngineService"
_METHOD = f"/{SERVICE}/Session"


@dataclass(frozen=True, slots=True)
class SessionStream:
    """An open session.

    Attributes:
        description: what the engine serves, as of this session.
        call: the stream.
        outbox: commands to write.
        has_commands: set by whoever puts something into the outbox.
    """

    description: card_pb2.DescribeResponse
    call: _Call
    outbox: Outbox
    has_commands: asyncio.Event

    async def read(self, on_event: Callable[[engine_pb2.SessionEvent], None]) -> None:
        """Read until the session ends.

        Raises:
            ConnectionLost: always, unless cancelled.
        """
        read = self.call.read
        try:
            while isinstance(event := await read(), engine_pb2.SessionEvent):
                on_event(event)
        except grpc.aio.AioRpcError as error:
            raise ConnectionLost(words(error)) from error
        except ValueError as fault:
            raise ConnectionLost(f"the engine sent a malformed event: {fault}") from fault
        raise ConnectionLost("the engine ended the session")

    async def write(self) -> None:
        """Write what gathers in the outbox until the session ends.

        Raises:
            ConnectionLost: always, unless cancelled.
        """
        outbox, has_commands, write = self.outbox, self.has_commands, self.call.write
        try:
            while True:
                await has_commands.wait()
                has_commands.clear()
                while outbox:
                    await write(outbox.take())
        except grpc.aio.AioRpcError as error:
            raise ConnectionLost(words(error)) from error
        except asyncio.InvalidStateError:
            raise ConnectionLost("the session ended while commands were written") from None


async def open_session(
    channel: grpc.aio.Channel, timeout_s: float, outbox: Outbox, has_commands: asyncio.Event
) -> SessionStream:
    """Describe the engine and open a session on it.

    Raises:
        ConnectionLost: it could not be opened.
        ProtocolMismatch: another kind of server answers.
    """
    open_call = cast(
        "Callable[[], _Call]",
        channel.stream_stream(_METHOD, None, engine_pb2.SessionEvent.FromString),  # pyright: ignore[reportUnknownMemberType] - partial stubs
    )
    try:
        async with asyncio.timeout(timeout_s):
            description = await _describe(channel)
            call = open_call()
            event = await call.read()
            if not isinstance(event, engine_pb2.SessionEvent) or not event.HasField("ready"):
                raise ConnectionLost("the first event of the session is not Ready")
            if event.ready.instance_id != description.instance_id:
                # It has restarted between the two calls.
                description = await _describe(channel)
    except TimeoutError:
        raise ConnectionLost(f"no session within {timeout_s:g} s") from None
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise ProtocolMismatch(f"the server does not speak {SERVICE}") from error
        raise ConnectionLost(words(error)) from error
    return SessionStream(description, call, outbox, has_commands)


async def _describe(channel: grpc.aio.Channel) -> card_pb2.DescribeResponse:
    return await engine_pb2_grpc.EngineServiceStub(channel).Describe(card_pb2.DescribeRequest())
