"""What is kept, as plain values. The bodies are JSON texts: no store looks into them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class StoredItem(NamedTuple):
    """One item: of a conversation, or of a response's input.

    Attributes:
        id: unlike that of every other item of the tenant.
        created_at: Unix time in seconds.
        body_json: the item as the API shows it, a JSON object.
    """

    id: str
    created_at: int
    body_json: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response that has ended, or one that runs in the background.

    Attributes:
        id: unlike that of every other response of the tenant.
        created_at: Unix time in seconds.
        body_json: the response as the API shows it, a JSON object.
        input_json: the items that were sent with it, a JSON array.
        previous_id: the response that it follows; empty for none.
        conversation_id: the conversation that it is part of; empty for none.
        lease_until: Unix time in seconds until which a router vouches that it runs; 0 when it has ended.
    """

    id: str
    created_at: int
    body_json: str
    input_json: str = "[]"
    previous_id: str = ""
    conversation_id: str = ""
    lease_until: int = 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its items.

    Attributes:
        id: unlike that of every other conversation of the tenant.
        created_at: Unix time in seconds.
        metadata: texts by name.
    """

    id: str
    created_at: int
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class ItemPage(NamedTuple):
    """Some items of a conversation, and whether others follow."""

    items: Sequence[StoredItem]
    has_more: bool
