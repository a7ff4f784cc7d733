"""Calls of a gRPC server that is under examination: by path, with bytes, so that any server can be asked anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from smg.cli.doctor.wire import Target


class CallFailed(Exception):
    """A call has ended with another status than OK.

    Attributes:
        code: the status.
        words: the server's, or gRPC's.
    """

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(f"{code.name}: {words}" if words else code.name)
        self.code = code
        self.words = words


class Calls:
    """A channel to one server. Leave it (`async with`) to close it."""

    def __init__(self, target: Target, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        """Args: metadata goes with every call."""
        aio: Any = grpc.aio
        if target.is_tls:
            files = (target.ca_cert, target.client_key, target.client_cert)
            roots, key, chain = (path.read_bytes() if path is not None else None for path in files)
            credentials = grpc.ssl_channel_credentials(roots, key, chain)
            self._channel: Any = aio.secure_channel(target.authority, credentials)
        else:
            self._channel = aio.insecure_channel(target.authority)
        self._timeout_s = target.timeout_s
        self._metadata = metadata

    async def __aenter__(self) -> Calls:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def ask(self, path: str, message: bytes = b"") -> bytes:
        """Call a unary method. Raises CallFailed."""
        try:
            return await self._channel.unary_unary(path)(
                message, timeout=self._timeout_s, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            raise CallFailed(error.code(), error.details() or "") from None

    async def has(self, path: str) -> bool:
        """The server has the method. Raises CallFailed if it does not answer at all."""
        try:
            await self.ask(path)
        except CallFailed as failed:
            if failed.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise
            return failed.code is not grpc.StatusCode.UNIMPLEMENTED
        return True

    async def stream(self, path: str, message: bytes, timeout_s: float) -> AsyncIterator[bytes]:
        """Call a method that streams, and yield its messages. Raises CallFailed."""
        try:
            async for piece in self._channel.unary_stream(path)(
                message, timeout=timeout_s, metadata=self._metadata
            ):
                yield piece
        except grpc.aio.AioRpcError as error:
            raise CallFailed(error.code(), error.details() or "") from None

    async def first_of_session(self, path: str) -> bytes | None:
        """Open a session, take its first message, and close it; None if it ends without one. Raises CallFailed."""
        call = self._channel.stream_stream(path)(timeout=self._timeout_s, metadata=self._metadata)
        try:
            first = await call.read()
        except grpc.aio.AioRpcError as error:
            raise CallFailed(error.code(), error.details() or "") from None
        finally:
            call.cancel()
        return first if isinstance(first, bytes) else None
