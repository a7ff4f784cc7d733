"""Asks the gateway that has just started whether it is ready, and what it serves.

A few lines of HTTP/1.1 over a stream: an HTTP client would cost the router 100 ms and memory for two requests.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_POLL_S = 0.05
_LONGEST_ANSWER_BYTES = 1024 * 1024


async def get(url: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Answer's status and body of GET `url``path`. Raises OSError when nobody answers."""
    parts = urlsplit(url)
    context = _own_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    try:
        lines = [f"GET {path} HTTP/1.1", f"host: {parts.netloc}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = await reader.read(_LONGEST_ANSWER_BYTES)
        while not reader.at_eof() and len(answer) < _LONGEST_ANSWER_BYTES:
            answer += await reader.read(_LONGEST_ANSWER_BYTES)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise ConnectionError(f"{url} did not answer in HTTP")
    return int(words[1]), body


def _own_context() -> ssl.SSLContext:
    """Trusts anybody: we ask ourselves, at an address for which our certificate was not made."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def models_when_ready(url: str, api_key: str | None, timeout_s: float) -> tuple[str, ...]:
    """Wait until the gateway takes requests; return the models it serves, none when the time is over."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with asyncio.timeout(timeout_s):
            while (await get(url, "/readiness", {}))[0] != 200:  # noqa: ASYNC110 -- told over HTTP only
                await asyncio.sleep(_POLL_S)
            status, body = await get(url, "/v1/models", headers)
        return _model_names(body) if status == 200 else ()
    except (TimeoutError, OSError, ValueError, KeyError):
        # What cannot be told is left out of the banner; the gateway runs all the same.
        return ()


def _model_names(body: bytes) -> tuple[str, ...]:
    answer: Any = json.loads(body)
    return tuple(str(model["id"]) for model in answer["data"])
