"""Sends request bodies as fast as the peer's flow control allows. Source: RFC 9113, 5.2 and 6.9."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.workers.http2 import frames
from smg.workers.http2.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class _Upload:
    """What one call sends.

    Attributes:
        pieces: what has not been sent.
        window: bytes that the peer takes on this stream.
        is_open: more may come.
    """

    pieces: deque[memoryview]
    window: int
    is_open: bool


class Uploads:
    """The bodies of one connection. A body of usual length leaves with its headers, in one write."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._uploads: dict[int, _Upload] = {}
        self._window = frames.DEFAULT_WINDOW
        self._initial_window = frames.DEFAULT_WINDOW
        self._frame_bytes = frames.DEFAULT_FRAME_BYTES

    def start(self, stream: int, head: bytes, body: bytes, *, is_open: bool = False) -> None:
        """Send headers, and of the body what may be sent; the rest follows by itself.

        Args:
            stream: number of the stream.
            head: frames with the headers.
            body: what is to be sent; empty only if more may come.
            is_open: more may come, by `add`.
        """
        upload = _Upload(deque((memoryview(body),) if body else ()), self._initial_window, is_open)
        made = [head, *self._frames(stream, upload)]
        if upload.pieces or is_open:
            self._uploads[stream] = upload
        self._write(b"".join(made))

    def add(self, stream: int, body: bytes) -> None:
        """Send more on a stream that was started open. Ignored when it has ended."""
        upload = self._uploads.get(stream)
        if upload is None:
            return
        upload.pieces.append(memoryview(body))
        made = self._frames(stream, upload)
        if made:
            self._write(b"".join(made))

    def forget(self, stream: int) -> None:
        """The stream has ended: what is left of its body is not wanted."""
        self._uploads.pop(stream, None)

    def opened(self, stream: int, increment: int) -> None:
        """The peer takes more, on a stream or (0) on the connection.

        Raises:
            ProtocolError: the increment is 0, or the window grows too large.
        """
        if increment == 0:
            raise ProtocolError("window update of 0 bytes")
        if stream == 0:
            self._window += increment
            if self._window > frames.HIGHEST_WINDOW:
                raise ProtocolError("connection window is too large")
        elif (upload := self._uploads.get(stream)) is not None:
            upload.window += increment
        self._flush()

    def configured(self, settings: dict[int, int]) -> None:
        """The peer has changed its settings.

        Raises:
            ProtocolError: a value is out of its range.
        """
        frame_bytes = settings.get(frames.MAX_FRAME_SIZE, self._frame_bytes)
        if not frames.DEFAULT_FRAME_BYTES <= frame_bytes < 2**24:
            raise ProtocolError(f"largest frame of {frame_bytes} bytes")
        self._frame_bytes = frame_bytes
        window = settings.get(frames.INITIAL_WINDOW_SIZE, self._initial_window)
        if window > frames.HIGHEST_WINDOW:
            raise ProtocolError(f"stream window of {window} bytes")
        for upload in self._uploads.values():
            upload.window += window - self._initial_window
        self._initial_window = window
        self._flush()

    def _flush(self) -> None:
        made: list[bytes] = []
        for stream, upload in list(self._uploads.items()):
            made += self._frames(stream, upload)
            if not upload.pieces and not upload.is_open:
                del self._uploads[stream]
        if made:
            self._write(b"".join(made))

    def _frames(self, stream: int, upload: _Upload) -> list[bytes]:
        """The frames that may be sent of a body now."""
        made: list[bytes] = []
        pieces = upload.pieces
        while pieces and (length := min(len(pieces[0]), self._frame_bytes, self._window, upload.window)) > 0:
            content, pieces[0] = bytes(pieces[0][:length]), pieces[0][length:]
            if not pieces[0]:
                pieces.popleft()
            upload.window -= length
            self._window -= length
            flags = 0 if pieces or upload.is_open else frames.END_STREAM
            made.append(frames.frame(frames.DATA, flags, stream, content))
        return made
