"""The output of a response in the making: items in their places, and an event for each of their steps.

Without a stream the same items come about, silently. Every item that was opened is closed exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg.responses.bodies import streamed_item
from smg.responses.items import new_item_id

if TYPE_CHECKING:
    from smg.responses.events import EventStream
    from smg.responses.shapes import Json
    from smg.responses.tools import Toolbox


class Output:
    """The items of one response.

    Attributes:
        toolbox: what the functions that the model calls are.
        stream: where events go; None where nobody wants them.
        with_encrypted: reasoning items carry a blob as well.
        items: in order, in full form. Those that are open are not complete.
    """

    def __init__(
        self, toolbox: Toolbox, stream: EventStream | None = None, *, with_encrypted: bool = False
    ) -> None:
        self.toolbox = toolbox
        self.stream = stream
        self.with_encrypted = with_encrypted
        self._items: list[Json | None] = []
        self._open: set[int] = set()

    @property
    def items(self) -> list[Json]:
        """The items so far, without those that were withdrawn."""
        return [item for item in self._items if item is not None]

    def emit(self, kind: str, fields: dict[str, Any]) -> None:
        """An event, if anybody wants it."""
        if self.stream is not None:
            self.stream.emit(kind, fields)

    def open(self, item: Json) -> int:
        """Begin an item. Returns its place."""
        place = len(self._items)
        self._items.append(item)
        self._open.add(place)
        self.emit("response.output_item.added", {"output_index": place, "item": item})
        return place

    def close(self, place: int, item: Json) -> None:
        """End an item, with all that it is."""
        self._open.discard(place)
        self._items[place] = item
        self.emit("response.output_item.done", {"output_index": place, "item": streamed_item(item)})

    def add(self, item: Json) -> None:
        """An item that is complete at once."""
        self.close(self.open(item), item)

    def withdraw(self, place: int) -> None:
        """Take an item back. Only where there is no stream, which has shown it."""
        self._open.discard(place)
        self._items[place] = None

    def close_all(self) -> None:
        """End what is open where nobody else will: the response was stopped."""
        for place in sorted(self._open):
            item = self._items[place]
            if item is not None:
                self.close(place, {**item, "status": "incomplete"})

    def calls_last(self) -> None:
        """Put what the client has to run behind everything else. Only where there is no stream."""
        items = self.items
        last = ("function_call", "custom_tool_call")
        self._items = [
            *(item for item in items if item["type"] not in last),
            *(item for item in items if item["type"] in last),
        ]

    def list_tools(self, label: str, tools: list[Json]) -> None:
        """What a server offers."""
        item_id = new_item_id("mcp_list_tools")
        place = self.open(
            {
                "id": item_id,
                "type": "mcp_list_tools",
                "server_label": label,
                "status": "in_progress",
                "tools": [],
            }
        )
        self.emit("response.mcp_list_tools.in_progress", {"output_index": place})
        self.emit("response.mcp_list_tools.completed", {"output_index": place, "tools": tools})
        self.close(place, {"type": "mcp_list_tools", "id": item_id, "server_label": label, "tools": tools})
