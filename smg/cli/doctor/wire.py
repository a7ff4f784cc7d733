"""Finds out what answers at an address before anybody speaks its protocol: a name, a port, TLS or not, HTTP/1 or 2.

A client library tells all of these in one way, "unavailable"; here the bytes of the answer are looked at. Formats:
RFC 9113, section 3.4 (connection preface) and 6.5 (SETTINGS); RFC 8446, section 5.1 (records).
"""

from __future__ import annotations

import asyncio
import enum
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.cli.doctor.findings import Finding, problem

if TYPE_CHECKING:
    from pathlib import Path

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_REQUEST = b"GET /liveness HTTP/1.1\r\nhost: smg-doctor\r\nconnection: close\r\n\r\n"
_SETTINGS = 4
_FRAME_HEAD_BYTES = 9
_TLS_RECORDS = (0x15, 0x16)
_FEW_BYTES = 64


class Speech(enum.Enum):
    """What an address speaks."""

    HTTP2 = "HTTP/2"
    HTTP1 = "HTTP/1"
    TLS = "TLS"
    NOTHING = "nothing"
    OTHER = "something else"


@dataclass(frozen=True, slots=True)
class Target:
    """An address to look at.

    Attributes:
        host: name or address, an IPv6 one without brackets.
        port: TCP port.
        is_tls: the address says TLS.
        ca_cert: file with the certificates to trust instead of the system's; None for the system's.
        client_cert: file with our own certificate, for servers that want one; None for none.
        client_key: file with its key.
        timeout_s: longest wait for one answer.
    """

    host: str
    port: int
    is_tls: bool
    ca_cert: Path | None = None
    timeout_s: float = 5.0
    client_cert: Path | None = None
    client_key: Path | None = None

    @property
    def authority(self) -> str:
        """Host and port, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def trust(self) -> ssl.SSLContext:
        """Whom to trust, and who we are. Raises OSError if a file cannot be read or is wrong."""
        context = ssl.create_default_context(cafile=self.ca_cert)
        if self.client_cert is not None:
            context.load_cert_chain(self.client_cert, self.client_key)
        return context


async def unreachable(target: Target, what: str) -> Finding | None:
    """Why nobody can be reached there; None if somebody can. Args: what: should be there, in words."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(target.timeout_s):
            await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as fault:
        return problem(
            "name",
            f"the name {target.host} cannot be resolved: {_words(fault)}",
            "check the spelling, and the DNS of the machine (or cluster) that asks",
        )
    try:
        async with asyncio.timeout(target.timeout_s):
            _, writer = await asyncio.open_connection(target.host, target.port)
    except ConnectionRefusedError:
        return problem(
            "connection",
            f"nothing listens on {target.authority}",
            f"start {what} there, or correct the port; in a container it must listen on 0.0.0.0 and publish the port",
        )
    except TimeoutError:
        return problem(
            "connection",
            f"{target.authority} does not answer within {target.timeout_s:g} s",
            "a firewall or network policy drops the packets, or the machine is down or frozen",
        )
    except OSError as fault:
        return problem(
            "connection",
            f"{target.authority} cannot be reached: {_words(fault)}",
            "check the address and the route to it",
        )
    writer.close()
    return None


async def speech_of(target: Target, *, is_http1: bool) -> Speech:
    """What the address speaks, found without TLS. Args: is_http1: what is expected; else HTTP/2."""
    # A server of what is expected should find nothing odd. gRPC servers speak first, whatever they hear.
    answer = await _answer_to(target, _REQUEST if is_http1 else _PREFACE)
    if len(answer) >= _FRAME_HEAD_BYTES and answer[3] == _SETTINGS:
        return Speech.HTTP2
    if answer.startswith(b"HTTP/"):
        # Servers on TLS, our gateway among them, tell a client that forgot it so in plain HTTP, with a 400.
        is_refusal = answer.split(b" ", 2)[1:2] == [b"400"]
        return Speech.TLS if is_refusal and await _shakes_hands(target) else Speech.HTTP1
    if answer[:1] and answer[0] in _TLS_RECORDS and answer[1:2] == b"\x03":
        return Speech.TLS
    # Most servers close a connection that does not begin with a handshake, without a word.
    if not answer and await _shakes_hands(target):
        return Speech.TLS
    return Speech.OTHER if answer else Speech.NOTHING


async def certificate_fault(target: Target) -> str:
    """Why the certificate there is not trusted, in words; empty if it is."""
    context = target.trust()
    try:
        async with asyncio.timeout(target.timeout_s):
            _, writer = await asyncio.open_connection(target.host, target.port, ssl=context)
    except ssl.SSLCertVerificationError as fault:
        return fault.verify_message
    except (OSError, TimeoutError) as fault:
        return _words(fault)
    writer.close()
    return ""


async def _answer_to(target: Target, opening: bytes) -> bytes:
    try:
        async with asyncio.timeout(target.timeout_s):
            reader, writer = await asyncio.open_connection(target.host, target.port)
            try:
                writer.write(opening)
                return await reader.read(_FEW_BYTES)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""


async def _shakes_hands(target: Target) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(target.timeout_s):
            _, writer = await asyncio.open_connection(target.host, target.port, ssl=context)
    except ssl.SSLError as fault:
        # A server that wants our certificate speaks TLS as well.
        return "WRONG_VERSION" not in str(fault.reason) and "EOF" not in str(fault)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _words(fault: BaseException) -> str:
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    return str(fault) or type(fault).__name__
