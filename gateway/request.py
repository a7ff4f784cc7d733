"""One HTTP request as handlers see it, whatever carried it here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.types.context import RequestContext, is_usable_id, new_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
    """

    method: str
    path: str
    raw_path: str
    query: str
    headers: dict[bytes, bytes]
    body: bytes
    context: RequestContext
    parameters: dict[str, str]

    def header(self, name: bytes) -> str:
        """A header's value, or "". Bytes that are not Latin-1 cannot occur."""
        return self.headers.get(name, b"").decode("latin-1")


def header_map(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by lower-case name; of several with one name the first counts, as in most servers."""
    result: dict[bytes, bytes] = {}
    for name, value in headers:
        result.setdefault(name, value)
    return result


def request_context(
    headers: dict[bytes, bytes], id_headers: Sequence[bytes], id_prefix: str
) -> RequestContext:
    """Ids of a request: the client's own where a header has a usable one, else new."""
    request_id = ""
    for name in id_headers:
        value = headers.get(name)
        if value and is_usable_id(text := value.decode("latin-1")):
            request_id = text
            break
    return RequestContext(
        request_id=request_id or new_id(id_prefix),
        is_client_id=bool(request_id),
        id_prefix=id_prefix,
        traceparent=headers.get(b"traceparent", b"").decode("latin-1"),
        routing_key=_routing_key(headers.get(b"x-smg-routing-key", b"")),
    )


def _routing_key(value: bytes) -> str:
    if not 0 < len(value) <= 128:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""
