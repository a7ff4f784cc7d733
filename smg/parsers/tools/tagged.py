"""The shape that most formats share: a marker that begins a call, the call, a marker that ends it.

A format gives the two markers and a payload: what reads the call between them. The end marker is looked for only where
the payload is complete, so inside of a JSON string it is text.

White space around the payload is dropped. A call counts when its end marker is read, when the next call's begin marker
follows the complete payload, or when the model itself ends its answer behind the complete payload.

The text of a broken call goes from its begin marker to the first end marker behind the place where it broke, that
marker included; to the next begin marker, without it; or to the end of the answer: whichever comes first. Behind the
place where it broke, a marker counts wherever it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from smg.parsers.markers import Markers
from smg.parsers.tools.call_writer import CallWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.parsers.events import Piece


class Payload(Protocol):
    """State of one call between its markers; writes start() and arguments() of the call, nothing else.

    Attributes:
        is_done: the call is complete; it was started.
        is_broken: it is none.
    """

    is_done: bool
    is_broken: bool

    def feed(self, text: str, start: int) -> int:
        """Read on from start; returns where it stopped: the text's length unless done or broken."""
        ...


class TaggedCalls:
    """A ToolParser."""

    def __init__(self, begin: str, end: str, payload: Callable[[CallWriter], Payload]) -> None:
        """Take the two markers, and what makes the payload of each call."""
        self.markers: tuple[str, ...] = (begin,)
        self.first = ""
        self.is_idle = True
        self._end_marker = end
        self._both = Markers((begin, end))
        self._make_payload = payload
        self._writer = CallWriter()
        self._payload: Payload | None = None  # None behind it, and behind the place where it broke
        self._held = ""  # may become a marker

    def begin(self, marker: str) -> None:
        """As ToolParser."""
        self.is_idle = False
        self._writer.read(marker)
        self._payload = self._make_payload(self._writer)

    def feed(self, text: str, start: int) -> int:
        """As ToolParser."""
        at = start
        while at < len(text) and not self.is_idle:
            at = self._read_behind(text, at) if self._payload is None else self._read_payload(text, at)
        return at

    def finish(self, *, is_cut: bool) -> None:
        """As ToolParser."""
        held, self._held = self._held, ""
        if self._payload is not None or is_cut:
            self._writer.break_off()
        is_other = not self._writer.is_broken and not self._end_marker.startswith(held)
        if not is_other:
            self._writer.read(held)
        self._end_call()
        if is_other:
            # The beginning of a begin marker, behind a call that counts.
            self._writer.read(held)
            self._writer.break_off()
            self._writer.end()

    def take(self) -> list[Piece]:
        """As ToolParser."""
        return self._writer.take()

    def _read_payload(self, text: str, start: int) -> int:
        payload = self._payload
        assert payload is not None  # noqa: S101 - feed() looks
        at = payload.feed(text, start)
        self._writer.read(text[start:at])
        if payload.is_broken:
            self._writer.break_off()
        if payload.is_broken or payload.is_done:
            self._payload = None
        return at

    def _read_behind(self, text: str, start: int) -> int:
        """Look for the end marker, or the next call."""
        before = 0
        if self._held:
            # Counted from here on: positions in the longer text, which begins with what was held.
            text, before, start = self._held + text[start:], len(self._held) - start, 0
            self._held = ""
        found = self._both.find(text, start)
        end = found.start() if found is not None else self._both.safe_end(text, start)
        between = text[start:end]
        if between and not between.isspace():
            self._writer.break_off()
        self._writer.read(between)
        if found is None:
            self._held = text[end:]
            return len(text) - before
        marker = found.group()
        if marker == self._end_marker:
            self._writer.read(marker)
            self._end_call()
        else:
            self._end_call()
            self.begin(marker)
        return found.end() - before

    def _end_call(self) -> None:
        self._writer.end()
        self._payload = None
        self.is_idle = True
