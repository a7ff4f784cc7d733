"""Carries the events of a response to a client that reads at its own pace. Events keep their numbers: none is merged."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from smg.services.streams import ITEM_BYTES, SlowReader
from smg_proto.responses.v1 import responses_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.errors import SmgError


class EventBuffer:
    """The events of one response: an Outlet on the one side, messages on the other.

    Attributes:
        overflow: set when the client is too far behind.
    """

    def __init__(self, max_held_bytes: int) -> None:
        self.overflow: SlowReader | None = None
        self._max_held_bytes = max_held_bytes
        self._events: deque[pb.StreamResponseResponse] = deque()
        self._held_bytes = 0
        self._changed = asyncio.Event()
        self._is_closed = False
        self._reader_waits = False
        self._error: SmgError | None = None
        self._waiting: list[Callable[[], None]] = []
        self._on_overflow: Callable[[], object] | None = None

    @property
    def buffer(self) -> EventBuffer:
        """What deliver() closes."""
        return self

    def call_on_overflow(self, callback: Callable[[], object]) -> None:
        """Be told when the client is too far behind."""
        self._on_overflow = callback

    def event(self, kind: str, number: int, data: bytes) -> None:
        """One more event."""
        if self._is_closed:
            return
        self._events.append(
            pb.StreamResponseResponse(type=kind, sequence_number=number, event_json=data.decode())
        )
        self._held_bytes += ITEM_BYTES + len(data)
        if self._held_bytes > self._max_held_bytes and not self._reader_waits:
            self._overflow()
        self._changed.set()

    def flush(self) -> None:
        """Events leave as they come."""

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The reader has not come back for more."""
        if self._reader_waits or self._is_closed:
            return False
        self._waiting.append(go_on)
        return True

    def fail(self, error: SmgError) -> None:
        """Nothing more comes, because of an error; it is raised after what is held."""
        if not self._is_closed:
            self._error = error
            self.close()

    def close(self) -> None:
        """Nothing more comes."""
        self._is_closed = True
        self._changed.set()
        self._let_go_on()

    async def next_message(self) -> pb.StreamResponseResponse | None:
        """The oldest event; waits for one. None at the end.

        Raises:
            SmgError: what the response failed with before its first event.
        """
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                return None
            self._changed.clear()
            self._reader_waits = True
            self._let_go_on()
            try:
                await self._changed.wait()
            finally:
                self._reader_waits = False
        event = self._events.popleft()
        self._held_bytes -= ITEM_BYTES + len(event.event_json.encode())
        return event

    def _overflow(self) -> None:
        self.overflow = self._error = SlowReader(
            f"the client reads too slowly: more than {self._max_held_bytes} bytes had to be held back for it"
        )
        self._events.clear()
        self._held_bytes = 0
        self.close()
        if self._on_overflow is not None:
            self._on_overflow()

    def _let_go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()
