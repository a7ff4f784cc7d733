"""One HTTP/2 connection to a gRPC server, with any number of calls on it.

A read of the socket is taken apart to its end; then every call that got something is told once, with all of it. Under
load a read holds more, so the cost per message falls when it matters.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from smg.errors import CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE
from smg.tls.worker import handshake_fault
from smg.workers.http2 import frames
from smg.workers.http2.calls import Answer, Call, prefixed
from smg.workers.http2.frames import ProtocolError
from smg.workers.http2.headers import MAX_HEADER_BYTES, BlockAssembler, Status, request_block
from smg.workers.http2.keepalive import keep_alive
from smg.workers.http2.sending import Uploads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smg.workers.http2.calls import Receiver
    from smg.workers.http2.headers import Block
    from smg.workers.options import WorkerOptions

_log = logging.getLogger(__name__)

# Streams from which on a read waits a moment for more: with fewer, delay costs more than wake-ups.
_MANY_STREAMS = 16
_REFILL_BYTES = 2**30

_NO_TLS = "; if it wants TLS, its address must begin with grpcs://"
_NO_CERTIFICATE = "; it may want a certificate that it trusts (--client-cert-path)"
_CANCELLED = Status(CANCELLED, "cancelled", {})


@dataclass(slots=True)
class _Waiting:
    """A call that waits for a stream."""

    call: Call
    block: bytes
    body: bytes
    is_open: bool


class Connection(asyncio.Protocol):
    """One connection.

    Attributes:
        ending: done when the connection takes no more calls; its result says why. Calls that the server has taken may
            still end well.
    """

    def __init__(self, authority: str, options: WorkerOptions, *, is_tls: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._authority = authority
        self._is_tls = is_tls
        self._options = options
        self._transport: asyncio.Transport | None = None
        self._uploads = Uploads(self._write)
        self._blocks_in = BlockAssembler()
        self._blocks_out: dict[str, bytes] = {}
        self._streams: dict[int, Call] = {}
        self._waiting: deque[_Waiting] = deque()
        self._numbers = itertools.count(1, 2)
        self._max_streams = 2**31
        self._is_greeted = False
        self._rest = b""
        self._unacknowledged = 0
        self._touched: list[Call] = []
        self.ending: asyncio.Future[str] = self._loop.create_future()

    def call(
        self, path: str, message: bytes, receiver: Receiver, metadata: tuple[tuple[str, str], ...] = ()
    ) -> Call:
        """Start a call that sends one message.

        The receiver is told of a closed connection from the event loop, never from here.
        """
        return self._begin(path, receiver, metadata, prefixed(message), is_open=False)

    def open(self, path: str, receiver: Receiver) -> Call:
        """Start a call that sends messages for as long as it lives. Otherwise as `call`."""
        return self._begin(path, receiver, (), b"", is_open=True)

    def send(self, call: Call, message: bytes) -> None:
        """Send a message on an open call; ignored when it has ended."""
        if call.stream:
            self._uploads.add(call.stream, prefixed(message))
            return
        for waiting in self._waiting:
            if waiting.call is call:
                waiting.body += prefixed(message)

    def _begin(
        self,
        path: str,
        receiver: Receiver,
        metadata: tuple[tuple[str, str], ...],
        body: bytes,
        *,
        is_open: bool,
    ) -> Call:
        call = Call(receiver, self._options.max_message_bytes)
        if self.ending.done():
            call.status = Status(UNAVAILABLE, self.ending.result(), {})
            self._loop.call_soon(self._tell, [call])
            return call
        block = self._block(path, metadata)
        self._waiting.append(_Waiting(call, block, body, is_open))
        self._start_waiting()
        return call

    @property
    def is_closed(self) -> bool:
        """No call runs any more, and none can start."""
        return self.ending.done() and not self._streams

    async def ask(self, path: str, message: bytes, timeout_s: float) -> tuple[Sequence[bytes], Status]:
        """Make a call and await its end. A timeout is a status as well (DEADLINE_EXCEEDED)."""
        answer = Answer()
        call = self.call(path, message, answer)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer.get()
        except TimeoutError:
            return (), Status(DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s", {})
        finally:
            self.cancel(call)

    def cancel(self, call: Call) -> None:
        """End a call; its receiver hears nothing more. One that has ended is ignored."""
        call.is_over = True
        if call.status is not None:
            return
        call.status = _CANCELLED
        if call.stream:
            self._write(frames.reset(call.stream, frames.CANCEL))
            self._forget(call)
        else:
            self._waiting = deque(waiting for waiting in self._waiting if waiting.call is not call)

    def close(self, why: str = "the router closed the connection") -> None:
        """Close. Every running call ends with UNAVAILABLE."""
        self._hang_up()
        self._end(why)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the HTTP/2 connection."""
        self._transport = cast("asyncio.Transport", transport)
        keep_alive(self._transport.get_extra_info("socket"), self._options)
        self._transport.write(frames.opening(MAX_HEADER_BYTES))

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more will come."""
        why = handshake_fault(exc) if isinstance(exc, OSError) else str(exc or "")
        text = f"connection lost: {why}" if why else "the server closed the connection"
        if not self._is_greeted:
            # Servers that want TLS, or a certificate, close without a word.
            text += _NO_CERTIFICATE if self._is_tls else _NO_TLS
        self._end(text)

    def data_received(self, data: bytes) -> None:
        """Take a read apart, and tell every call that got something."""
        try:
            self._take_frames(self._rest + data if self._rest else data)
        except ProtocolError as fault:
            _log.warning("%s: %s", self._authority, fault)
            self.close(f"the server broke HTTP/2: {fault}")
        if self._touched:
            touched, self._touched = self._touched, []
            self._tell(touched)
        transport = self._transport
        if (
            self._options.read_pause_s
            and len(self._streams) >= _MANY_STREAMS
            and transport
            and not transport.is_closing()
        ):
            transport.pause_reading()
            self._loop.call_later(self._options.read_pause_s, self._resume)

    def _take_frames(self, data: bytes) -> None:
        begin, end = 0, len(data)
        unpack, streams, touched = frames.HEADER.unpack_from, self._streams, self._touched
        blocks_in, received = self._blocks_in, 0
        while end - begin >= frames.HEADER_BYTES:
            high, low, kind, flags, stream = unpack(data, begin)
            content = begin + frames.HEADER_BYTES
            begin = content + (high << 16 | low)
            if begin - content > frames.DEFAULT_FRAME_BYTES:
                raise ProtocolError(f"frame of {begin - content} bytes, at most 16384 were agreed")
            if begin > end:
                begin = content - frames.HEADER_BYTES
                break
            if kind == frames.DATA:
                received += begin - content
            if kind == frames.DATA and flags == 0 and not blocks_in.is_open:
                call = streams.get(stream & frames.STREAM_MASK)
                if call is not None:
                    if not call.messages:
                        touched.append(call)
                    call.data(data[content:begin])
                    if call.status is not None:
                        self._refuse(call)
            else:
                self._take_frame(kind, flags, stream & frames.STREAM_MASK, data[content:begin])
        self._rest = data[begin:]
        self._acknowledge(received)

    def _take_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Any frame but plain data."""
        if self._blocks_in.is_open:
            self._take_block(self._blocks_in.go_on(kind, stream, flags, payload))
        elif kind == frames.HEADERS:
            self._take_block(self._blocks_in.begin(stream, flags, payload))
        elif kind == frames.DATA:
            self._take_data(flags, stream, frames.content_of(flags, payload))
        elif kind == frames.RST_STREAM:
            if (call := self._streams.get(stream)) is not None:
                call.reset(int.from_bytes(payload, "big"))
                self._finish(call)
        elif kind == frames.SETTINGS:
            self._take_settings(flags, payload)
        elif kind == frames.PING:
            if not flags & frames.ACK:
                self._write(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.WINDOW_UPDATE:
            self._uploads.opened(stream, int.from_bytes(payload, "big") & frames.STREAM_MASK)
        elif kind == frames.GOAWAY:
            self._take_goaway(payload)
        elif kind in (frames.PUSH_PROMISE, frames.CONTINUATION):
            raise ProtocolError(f"unexpected frame of type {kind}")

    def _take_data(self, flags: int, stream: int, content: bytes) -> None:
        """Data that is padded, or the last of its stream."""
        call = self._streams.get(stream)
        if call is None:
            return
        self._touched.append(call)
        call.data(content)
        if call.status is not None:
            self._refuse(call)
        elif flags & frames.END_STREAM:
            call.end_of_data()
            self._finish(call)

    def _take_block(self, block: Block | None) -> None:
        call = self._streams.get(block.stream) if block is not None else None
        if block is None or call is None:
            return
        call.headers(block.fields, is_last=block.is_last)
        if block.is_last:
            self._finish(call)
        elif call.status is not None:
            self._refuse(call)

    def _take_settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            return
        self._is_greeted = True
        settings = frames.settings_of(payload)
        self._max_streams = settings.get(frames.MAX_CONCURRENT_STREAMS, self._max_streams)
        self._write(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._uploads.configured(settings)
        self._start_waiting()

    def _take_goaway(self, payload: bytes) -> None:
        """The server wants to end the connection: calls that it has taken may still end well."""
        last = int.from_bytes(payload[:4], "big") & frames.STREAM_MASK
        words = payload[8:].decode("utf-8", "replace")
        why = f"the server is closing the connection{': ' + words if words else ''}"
        for stream in [stream for stream in self._streams if stream > last]:
            call = self._streams[stream]
            call.status = Status(UNAVAILABLE, why, {})
            self._finish(call)
        if not self.ending.done():
            self.ending.set_result(why)
        self._fail_waiting(why)

    def _finish(self, call: Call) -> None:
        """A call has its status: its stream is over."""
        if not call.messages:
            self._touched.append(call)
        self._forget(call)

    def _forget(self, call: Call) -> None:
        self._streams.pop(call.stream, None)
        self._uploads.forget(call.stream)
        self._start_waiting()
        if self.ending.done() and not self._streams:
            self._hang_up()

    def _refuse(self, call: Call) -> None:
        """A call ended here because of what the server sent."""
        self._write(frames.reset(call.stream, frames.CANCEL))
        self._finish(call)

    def _tell(self, calls: Iterable[Call]) -> None:
        for call in calls:
            messages, call.messages = call.messages, []
            try:
                # A receiver may cancel any call, its own as well.
                if messages and not call.is_over:
                    call.receiver.on_messages(messages)
                if call.status is not None and not call.is_over:
                    call.is_over = True
                    call.receiver.on_end(call.status)
            except Exception:  # noqa: BLE001 - one receiver must not harm the others
                _log.exception("%s: the receiver of a call raised", self._authority)
                self.cancel(call)

    def _start_waiting(self) -> None:
        while self._waiting and len(self._streams) < self._max_streams:
            waiting = self._waiting.popleft()
            stream = waiting.call.stream = next(self._numbers)
            self._streams[stream] = waiting.call
            head = frames.frame(frames.HEADERS, frames.END_HEADERS, stream, waiting.block)
            self._uploads.start(stream, head, waiting.body, is_open=waiting.is_open)

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        calls = [each.call for each in waiting]
        for call in calls:
            call.status = Status(UNAVAILABLE, why, {})
        self._touched += calls

    def _end(self, why: str) -> None:
        if not self.ending.done():
            self.ending.set_result(why)
        self._fail_waiting(why)
        calls = list(self._streams.values())
        self._streams.clear()
        for call in calls:
            call.status = call.status or Status(UNAVAILABLE, why, {})
        touched, self._touched = [*self._touched, *calls], []
        self._tell(touched)

    def _acknowledge(self, size: int) -> None:
        """Give back the part of the connection's window that was used, long before it is empty."""
        self._unacknowledged += size
        if self._unacknowledged >= _REFILL_BYTES:
            self._write(frames.window_update(self._unacknowledged))
            self._unacknowledged = 0

    def _hang_up(self) -> None:
        """Close the socket. In TLS that would wait for the server to agree, which need not come: its calls end anyway."""
        if self._transport is not None:
            (self._transport.abort if self._is_tls else self._transport.close)()

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _block(self, path: str, metadata: tuple[tuple[str, str], ...]) -> bytes:
        if metadata:
            return request_block(self._authority, path, metadata, is_tls=self._is_tls)
        block = self._blocks_out.get(path)
        if block is None:
            block = self._blocks_out[path] = request_block(self._authority, path, is_tls=self._is_tls)
        return block
