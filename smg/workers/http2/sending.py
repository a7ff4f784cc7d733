"""Sends request bodies as fast as the peer's flow control allows. Source: RFC 9113, 5.2 and 6.9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.workers.http2 import frames
from smg.workers.http2.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class _Upload:
    """A body on its way.

    Attributes:
        rest: what has not been sent.
        window: bytes that the peer takes on this stream.
    """

    rest: memoryview
    window: int


class Uploads:
    """The bodies of one connection. A body of usual length leaves with its headers, in one write."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._uploads: dict[int, _Upload] = {}
        self._window = frames.DEFAULT_WINDOW
        self._initial_window = frames.DEFAULT_WINDOW
        self._frame_bytes = frames.DEFAULT_FRAME_BYTES

    def start(self, stream: int, head: bytes, body: bytes) -> None:
        """Send headers, and of the body what may be sent; the rest follows by itself."""
        upload = _Upload(memoryview(body), self._initial_window)
        pieces = [head, *self._pieces(stream, upload)]
        if upload.rest:
            self._uploads[stream] = upload
        self._write(b"".join(pieces))

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
        pieces: list[bytes] = []
        for stream, upload in list(self._uploads.items()):
            pieces += self._pieces(stream, upload)
            if not upload.rest:
                del self._uploads[stream]
        if pieces:
            self._write(b"".join(pieces))

    def _pieces(self, stream: int, upload: _Upload) -> list[bytes]:
        """The frames that may be sent of a body now."""
        pieces: list[bytes] = []
        while (length := min(len(upload.rest), self._frame_bytes, self._window, upload.window)) > 0:
            content, upload.rest = bytes(upload.rest[:length]), upload.rest[length:]
            upload.window -= length
            self._window -= length
            flags = 0 if upload.rest else frames.END_STREAM
            pieces.append(frames.frame(frames.DATA, flags, stream, content))
        return pieces
