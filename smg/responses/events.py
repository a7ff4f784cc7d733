"""Numbers the events of a response and makes JSON of them. Where they go is the front's business.

Format: S1, "Streaming Response"; every event carries its type and a sequence number from 0 without gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable


class Outlet(Protocol):
    """Where events go. Called on the event loop; nothing blocks or raises."""

    def event(self, kind: str, number: int, data: bytes) -> None:
        """One more event.

        Args:
            kind: its type.
            number: its sequence number.
            data: the whole event, as JSON in UTF-8.
        """
        ...

    def flush(self) -> None:
        """Send what has gathered, in one piece."""
        ...

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The client does not read; go_on is called once when it does again, or when it is given up."""
        ...


class EventStream:
    """The events of one response.

    Attributes:
        number: of the next event.
    """

    def __init__(self, outlet: Outlet) -> None:
        self.number = 0
        self.outlet = outlet

    def emit(self, kind: str, fields: dict[str, Any]) -> None:
        """An event with some members."""
        data = orjson.dumps({"type": kind, "sequence_number": self.number, **fields})
        self.outlet.event(kind, self.number, data)
        self.number += 1

    def fragment(self, kind: str, place: bytes, fragment: bytes) -> None:
        """An event whose last member is a text that is JSON already.

        Args:
            kind: its type.
            place: its other members as JSON, with a comma before and the name of the last behind: `,"a":1,"delta":"`.
            fragment: the inside of the text.
        """
        data = b'{"type":"%b","sequence_number":%d%b%b"}' % (kind.encode(), self.number, place, fragment)
        self.outlet.event(kind, self.number, data)
        self.number += 1
