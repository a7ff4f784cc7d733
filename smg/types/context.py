"""Who asks, and the ids under which the request is followed."""

from __future__ import annotations

import random
import secrets
import string
import uuid
from dataclasses import dataclass
from typing import Literal, NamedTuple

Role = Literal["", "user", "admin"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity behind a request.

    Attributes:
        tenant: name of the tenant whose key was used, or `header:` and the name that a trusted proxy asserts; empty
            for anonymous and shared-key callers, who cannot be told apart.
        principal: id of the control-plane key; empty without one.
        method: how it was told who this is; "none" when nobody asked.
        role: what it may do on the control plane; empty for nothing.
    """

    tenant: str = ""
    principal: str = ""
    method: Literal["none", "api_key", "tenant_api_key", "tenant_header", "control_plane_key"] = "none"
    role: Role = ""

    @property
    def is_admin(self) -> bool:
        """May change things on the control plane."""
        return self.role == "admin"


ANONYMOUS = Caller()
MAX_ID_LENGTH = 128


def is_visible_ascii(text: str) -> bool:
    """Nothing that would break a header, a log line or an answer."""
    return all("!" <= character <= "~" for character in text)


def is_usable_id(text: str) -> bool:
    """A client's request id may be used: there is one, it is short, and visible ASCII only."""
    return 0 < len(text) <= MAX_ID_LENGTH and is_visible_ascii(text)


# Ids must differ, nobody has to be kept from guessing one: no system call for each.
_LETTERS = string.ascii_letters + string.digits
_ids = random.Random(secrets.randbits(256))  # noqa: S311 - seeded by the system, guards nothing


def new_id(prefix: str) -> str:
    """A random id in OpenAI's form: the prefix, a dash and 24 hexadecimal digits."""
    return f"{prefix}-{_ids.getrandbits(96):024x}"


def new_call_id(chars: int | None = None) -> str:
    """A random id for a call of a function: in OpenAI's form, or of so many letters and digits."""
    if chars is None:
        return f"call_{_ids.getrandbits(96):024x}"
    return "".join(_ids.choices(_LETTERS, k=chars))


class PlacementNote:
    """Takes down where a request went, for a caller that asked; the last attempt counts.

    Attributes:
        worker_url: the worker.
        reason: why it was picked, in one line without text of the caller's.
    """

    __slots__ = ("worker_url", "reason")

    def __init__(self) -> None:
        self.worker_url = self.reason = ""


class TraceHeaders(NamedTuple):
    """The W3C trace context that workers get. Attributes: parent: `traceparent`; state: `tracestate`; empty for none."""

    parent: str = ""
    state: str = ""


NO_TRACE = TraceHeaders()


class RequestContext(NamedTuple):
    """What travels with a request beside its message.

    Attributes:
        request_id: id for logs and for the x-request-id header.
        is_client_id: the client chose request_id; answers then carry it in their own ids.
        id_prefix: prefix of the answer's id, such as "chatcmpl".
        caller: who asks.
        traceparent: W3C trace context as received; empty when there is none, or one that cannot be read.
        tracestate: what vendors add to it, as received.
        routing_key: key for sticky placement; empty when there is none.
        target_worker: index of the worker that the caller insists on; None where it does not.
        routing_tokens: the prompt's first token ids as the caller wrote them (policies/hints.py); empty for none.
        note: where to tell why the worker was picked; None when nobody asked.
    """

    request_id: str
    is_client_id: bool = False
    id_prefix: str = "req"
    caller: Caller = ANONYMOUS
    traceparent: str = ""
    routing_key: str = ""
    target_worker: int | None = None
    routing_tokens: bytes | str = ""
    note: PlacementNote | None = None
    tracestate: str = ""

    def answer_id(self, rid: str = "") -> str:
        """The id of the answer: the request's own `rid`, else one that nobody else has."""
        if rid:
            return rid
        if self.is_client_id:
            return f"{self.request_id}-{uuid.UUID(int=_ids.getrandbits(128), version=4)}"
        return new_id(self.id_prefix)
