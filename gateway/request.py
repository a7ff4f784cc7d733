"""One HTTP request as handlers see it, whatever carried it here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import httptools

from smg.policies.hints import asks_for_reason, first_routing_key, parse_target_worker
from smg.telemetry.tracecontext import usable_traceparent, usable_tracestate
from smg.types.context import ANONYMOUS, PlacementNote, RequestContext, is_usable_id, new_id

if TYPE_CHECKING:
    from collections.abc import Sequence


class HttpRequest(NamedTuple):
    """A request with its whole body.

    Attributes:
        method: upper case.
        path: percent-decoded, without the query.
        raw_path: as sent, without the query.
        query: as sent, without the question mark.
        headers: names in lower case; the first of several with the same name.
        body: the whole body.
        context: ids and caller.
        parameters: the variable parts of the path, by the names in the route table.
        arrived_at: when it was here as a whole, by time.monotonic; 0 where nobody looked.
    """

    method: str
    path: str
    raw_path: str
    query: str
    headers: dict[bytes, bytes]
    body: bytes
    context: RequestContext
    parameters: dict[str, str]
    arrived_at: float = 0.0

    def header(self, name: bytes) -> str:
        """A header's value, or "". Bytes that are not Latin-1 cannot occur."""
        return self.headers.get(name, b"").decode("latin-1")


def request_context(
    headers: dict[bytes, bytes],
    id_headers: Sequence[bytes],
    id_prefix: str,
    key_headers: Sequence[bytes] = (b"x-smg-routing-key",),
) -> RequestContext:
    """Ids of a request: the client's own where a header has a usable one, else new. And what it says of its placement."""
    request_id = ""
    for name in id_headers:
        value = headers.get(name)
        if value and is_usable_id(text := value.decode("latin-1")):
            request_id = text
            break
    traceparent = headers.get(b"traceparent")
    return RequestContext(
        request_id or new_id(id_prefix),
        bool(request_id),
        id_prefix,
        ANONYMOUS,
        usable_traceparent(traceparent.decode("latin-1")) if traceparent else "",
        first_routing_key(map(headers.get, key_headers)),
        parse_target_worker(headers.get(b"x-smg-target-worker")),
        headers.get(b"x-smg-routing-tokens", b""),
        PlacementNote() if asks_for_reason(headers.get(b"x-smg-explain-routing")) else None,
        usable_tracestate(headers.get(b"tracestate", b"").decode("latin-1")) if traceparent else "",
    )


def split_target(url: bytes) -> tuple[str, str]:
    """Path and query of a request target, as sent: most clients send no more than a path."""
    if url[:1] == b"/" and b"#" not in url:
        path, _, query = url.partition(b"?")
    else:
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            return url.decode("latin-1"), ""
        path, query = parsed.path or b"", parsed.query or b""
    return path.decode("latin-1"), query.decode("latin-1")
