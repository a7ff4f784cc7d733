"""Reads requests off a connection with httptools, and bounds what their heads may hold. Format: RFC 9112.

`Upgrade` is ignored, as RFC 9110 section 7.8 allows: such a request is read as any other, with its body.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from typing import TYPE_CHECKING, Any, NoReturn

import httptools

from smg.errors import HeadTooLarge, MalformedRequest

if TYPE_CHECKING:
    from gateway.app import Exchange
    from smg.errors import SmgError

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 65536
MAX_HEADERS = 256

_FRAMING = (b"content-length", b"transfer-encoding", b"connection")
_NOT_HTTP = "this is not an HTTP request"
_HEAD_TOO_LONG = (
    f"the request's head is too long: {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers are allowed"
)
_VERSIONS = ("1.1", "1.0")


class ArrivingRequest:
    """A request of which the head is here.

    Attributes:
        method: upper case.
        url: as sent.
        headers: names in lower case; the first of several with the same name.
        is_http_1_0: its client does not know chunked bodies and ends every connection.
        keeps_alive: another request may follow it.
        pieces: of its body, until it is answered.
        size: bytes of its body so far.
        is_complete: nothing of it is missing.
        is_answered: the last byte of its answer was sent.
        exchange: who answers it; None until its turn has come.
    """

    __slots__ = (
        "method", "url", "headers", "is_http_1_0", "keeps_alive", "pieces", "size", "is_complete", "is_answered", "exchange",
    )  # fmt: skip

    def __init__(
        self, method: str, url: bytes, headers: dict[bytes, bytes], *, is_http_1_0: bool, keeps_alive: bool
    ) -> None:
        self.method = method
        self.url = url
        self.headers = headers
        self.is_http_1_0 = is_http_1_0
        self.keeps_alive = keeps_alive
        self.pieces: list[bytes] = []
        self.size = 0
        self.is_complete = self.is_answered = False
        self.exchange: Exchange | None = None

    def body(self) -> bytes:
        """The body, once."""
        pieces, self.pieces = self.pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class RequestReader(asyncio.Protocol, abc.ABC):
    """The reading half of a connection. Methods without an underscore are asyncio's and httptools' callbacks."""

    def __init__(self) -> None:
        self._parser: Any = self._new_parser()
        self._url = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._is_in_head = self._is_replay = False
        # Why the parser was stopped.
        self._fault: SmgError | None = None
        self._head_bytes = 0
        # Bytes since the parser last told of something; it keeps what it does not tell of.
        self._untold_bytes = 0
        # Looks at the clock since something came that was waited for.
        self._idle_ticks = 0
        self._arriving: ArrivingRequest | None = None

    @abc.abstractmethod
    def _head_arrived(self, request: ArrivingRequest) -> None:
        """A request begins."""

    @abc.abstractmethod
    def _body_arrived(self, request: ArrivingRequest, body: bytes) -> None:
        """More of a body."""

    @abc.abstractmethod
    def _all_arrived(self, request: ArrivingRequest) -> None:
        """A request is complete."""

    @abc.abstractmethod
    def _refuse(self, error: SmgError) -> None:
        """What comes cannot be read, or does not come."""

    def data_received(self, data: bytes) -> None:
        """Parse, and refuse what is malformed or too long."""
        self._untold_bytes += len(data)
        try:
            while True:
                try:
                    self._parser.feed_data(data)
                except httptools.HttpParserUpgrade as upgrade:
                    data = data[upgrade.args[0] :]
                    self._read_on_as_http()
                else:
                    break
        except httptools.HttpParserError:
            if self._fault is None:
                logger.warning("a connection sent what is not HTTP")
            self._refuse(self._fault or bad_request(_NOT_HTTP))
            return
        if self._untold_bytes > MAX_HEAD_BYTES:
            self._refuse(HeadTooLarge(_HEAD_TOO_LONG))

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._is_replay:
            return
        self._url = b""
        self._fields = []
        self._is_in_head = True
        self._head_bytes = self._untold_bytes = self._idle_ticks = 0

    def on_url(self, url: bytes) -> None:
        """More of the path."""
        if self._is_replay:
            return
        self._url += url
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._stop_parser(HeadTooLarge(_HEAD_TOO_LONG))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which counts as one."""
        if self._is_replay:
            return
        fields = self._fields
        fields.append((name.lower(), value))
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > MAX_HEAD_BYTES or len(fields) > MAX_HEADERS:
            self._stop_parser(HeadTooLarge(_HEAD_TOO_LONG))

    def on_headers_complete(self) -> None:
        """The head is here."""
        if self._is_replay:
            return
        self._is_in_head = False
        self._untold_bytes = 0
        parser = self._parser
        version = parser.get_http_version()
        is_http_1_0 = version == "1.0"
        # Reversed, so that of several with one name the first counts.
        headers = dict(reversed(self._fields))
        if not is_http_1_0:
            self._check_head(version, headers)
        self._arriving = ArrivingRequest(
            parser.get_method().decode("ascii"),
            self._url,
            headers,
            is_http_1_0=is_http_1_0,
            keeps_alive=not is_http_1_0 and parser.should_keep_alive(),
        )
        self._head_arrived(self._arriving)

    def on_body(self, body: bytes) -> None:
        """More of the body."""
        self._untold_bytes = self._idle_ticks = 0
        if self._arriving is not None:
            self._body_arrived(self._arriving, body)

    def on_message_complete(self) -> None:
        """The request is here, unless the parser takes its body for another protocol."""
        if self._parser.should_upgrade():
            return
        self._untold_bytes = 0
        request, self._arriving = self._arriving, None
        if request is not None:
            request.is_complete = True
            self._all_arrived(request)

    def _new_parser(self) -> Any:
        parser: Any = httptools.HttpRequestParser(self)
        # What follows the last request of a connection is no fault: it may have been sent before the client knew.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _read_on_as_http(self) -> None:
        """Put a new parser where the old one stopped, behind a head that asked for another protocol."""
        head = b"".join(b"%b: %b\r\n" % field for field in self._fields if field[0] in _FRAMING)
        self._parser = self._new_parser()
        self._is_replay = True
        try:
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % head)
        finally:
            self._is_replay = False

    def _check_head(self, version: str, headers: dict[bytes, bytes]) -> None:
        """RFC 9112, section 2.3 and 3.2: the version is known, and there is exactly one Host."""
        if version not in _VERSIONS:
            self._stop_parser(
                bad_request(f"the request has HTTP version {version}; allowed: {', '.join(_VERSIONS)}")
            )
        if b"host" not in headers:
            self._stop_parser(bad_request("the request has no Host header, which HTTP/1.1 demands"))
        if len(headers) < len(self._fields) and sum(name == b"host" for name, _ in self._fields) > 1:
            self._stop_parser(bad_request("the request has several Host headers; allowed: one"))

    def _stop_parser(self, fault: SmgError) -> NoReturn:
        self._fault = fault
        raise _StoppedError


def bad_request(message: str) -> MalformedRequest:
    """The refusal of what breaks HTTP itself."""
    return MalformedRequest(message, code="bad_request")


class _StoppedError(Exception):
    """Stops the parser."""
