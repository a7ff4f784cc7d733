"""Heads of HTTP/1.1 answers as bytes. Format: RFC 9112, section 4 and 5."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    Header = tuple[bytes, bytes]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE = b"connection: close\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}


class _Date:
    """The Date header, written anew once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def line(self) -> bytes:
        second = int(time.time())  # noqa: TID251 - RFC 9110 wants the wall clock here
        if second != self._second:
            self._second = second
            self._line = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        return self._line


_date = _Date()


def header_lines(headers: Sequence[Header]) -> bytes:
    """Headers as lines.

    Raises:
        ValueError: a header holds a line break, which would make it two.
    """
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers):
        raise ValueError(f"a header of the answer holds a line break: {headers!r}")
    return lines


def answer_head(status: int, lines: bytes, framing: bytes) -> bytes:
    """A whole head: the status line, the Date, header lines, and those that say how the body is framed."""
    start = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    return b"%b%b%b%b\r\n" % (start, _date.line(), lines, framing)


def content_length(headers: Sequence[Header]) -> int | None:
    """The length that headers declare; None when they declare none. Names are in lower case."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)
    return None


def whole_answer(status: int, text: str) -> bytes:
    """A short plain answer, after which the connection is closed."""
    body = text.encode("ascii")
    lines = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(body)
    return answer_head(status, lines, CLOSE) + body
