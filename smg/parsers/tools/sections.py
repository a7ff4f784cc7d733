"""The shape that most formats share: a section of the answer between two marks, and calls in it, marked or not.

A format gives a layout, its marks, and a payload: what reads one call. Marks of the layout are looked for where the
payload is complete, or broken; so inside of an argument they are text.

White space around calls is dropped, and marks around complete calls are. A call counts when its end mark is read, when
the next mark follows the complete payload, or when the model itself ends its answer there; in a layout without end
marks, and where the payload reads its own, when the payload is complete. A section need not be closed.

The text of a broken call goes from what was not yet given out (its own mark, and the section's where it is the first)
to the next end mark, that included, or to the next begin mark, that not; or to the end of the answer: whichever comes
first. What stands between calls and fits nothing is text up to the next mark as well. A section without a complete
call is text as a whole. A section without a begin mark, at the beginning of the answer, ends where something does not
fit.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from smg.parsers.markers import Markers
from smg.parsers.tools.call_writer import CallWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.parsers.events import Piece
    from smg.parsers.tools.layout import Layout
    from smg.parsers.tools.tagged import Payload


_GAP, _CALL, _TAIL, _LOST, _NOTHING = range(5)


@lru_cache
def _gap(characters: str) -> re.Pattern[str]:
    return re.compile(rf"[\s{re.escape(characters)}]*")


@lru_cache
def _markers(marks: tuple[str, ...]) -> Markers:
    """One object for all answers in a format."""
    return Markers(marks)


class SectionCalls:
    """A ToolParser."""

    def __init__(
        self, layout: Layout, payload: Callable[[CallWriter], Payload], *, writer: CallWriter | None = None
    ) -> None:
        """Take the layout and what makes the payload of each call.

        Args:
            layout: see there.
            payload: gets the writer of the call.
            writer: the calls' writer where several parsers number their calls together.
        """
        bare = (layout.item, *layout.ends) if layout.is_bare else ()
        self.markers: tuple[str, ...] = (
            layout.begins + bare if layout.begins else tuple(filter(None, (layout.item,)))
        )
        self.markup: tuple[str, ...] = (*layout.marks, *layout.skips, *layout.inner)
        self.first = layout.first
        self.is_idle = True
        self._layout = layout
        self._marks = _markers(layout.marks)
        self._gap = _gap(layout.gap)
        self._gap_marks = (*layout.marks, *layout.skips)
        self._longest_mark = max(map(len, self._gap_marks), default=0)
        self._make_payload = payload
        self._writer = writer if writer is not None else CallWriter()
        self._payload: Payload | None = None
        self._state = _GAP
        self._calls = 0  # complete, in the section
        self._is_open = False  # in a section
        self._is_marked = False  # which a mark began
        self._owes_end = False  # a call stood alone; an end mark belongs to it
        self._held = ""  # may become a mark

    def begin(self, marker: str) -> None:
        """As ToolParser."""
        self.is_idle = False
        self._writer.read(marker)
        if marker and marker in self._layout.ends:
            self._read_stray_end()
            return
        self._owes_end = False
        self._calls = 0
        self._is_open = not marker or marker in self._layout.begins
        self._is_marked = bool(marker)
        self._state = _GAP
        if not self._is_open:
            self._begin_call()

    def feed(self, text: str, start: int) -> int:
        """As ToolParser."""
        before = 0
        if self._held:
            # Counted from here on: positions in the longer text, which begins with what was held.
            text, before, start = self._held + text[start:], len(self._held) - start, 0
            self._held = ""
        at = start
        while at < len(text) and not self.is_idle:
            if self._state == _CALL:
                at = self._read_call(text, at)
            elif self._state == _GAP:
                at = self._read_gap(text, at)
            elif self._state == _NOTHING:
                self.is_idle = True
            else:
                at = self._read_behind(text, at)
        return at - before

    def finish(self, *, is_cut: bool) -> None:
        """As ToolParser."""
        held, self._held = self._held, ""
        layout = self._layout
        ends = layout.ends
        if self._state == _CALL or (self._state == _TAIL and is_cut):
            self._writer.break_off()
        elif self._state == _TAIL:
            ends = (*ends, layout.item_end)
            if self._begins_one(held, ends):
                self._writer.read(held)
                held = ""
            self._writer.end()
        elif self._state == _GAP and self._calls and self._begins_one(held, ends):
            self._writer.forget()
            held = ""
        if self._state != _NOTHING:
            self._writer.read(held)
            self._writer.break_off()
            self._writer.end()
        self._end_section()

    def take(self) -> list[Piece]:
        """As ToolParser."""
        return self._writer.take()

    @staticmethod
    def _begins_one(held: str, marks: tuple[str, ...]) -> bool:
        return not held or any(mark.startswith(held) for mark in marks)

    def _read_stray_end(self) -> None:
        if self._owes_end:
            self._writer.forget()
        self._writer.break_off()
        self._writer.end()
        self._owes_end = False
        self._state = _NOTHING

    def _begin_call(self) -> None:
        self._payload = self._make_payload(self._writer)
        self._state = _CALL

    def _end_call(self) -> None:
        if not self._writer.is_broken:
            self._calls += 1
        self._writer.end()
        self._payload = None
        self._state = _GAP
        if not self._is_open or self._layout.is_single:
            self._owes_end = self._layout.is_bare and not self._is_open and self._calls > 0
            self._end_section()

    def _end_section(self) -> None:
        self._payload = None
        self._state = _GAP
        self.is_idle = True

    def _read_call(self, text: str, start: int) -> int:
        payload = self._payload
        assert payload is not None  # noqa: S101 - _begin_call() set it
        at = payload.feed(text, start)
        self._writer.read(text[start:at])
        if payload.is_broken:
            self._writer.break_off()
            self._lose()
        elif payload.is_done and self._layout.item_end and not self._layout.reads_end:
            self._state = _TAIL
        elif payload.is_done:
            self._end_call()
        return at

    def _lose(self) -> None:
        """Something does not fit; what follows belongs to it."""
        self._state = _LOST
        if not self._is_marked and not self._writer.is_started:
            self._writer.end()
            self._end_section()

    def _read_gap(self, text: str, start: int) -> int:
        found = self._gap.match(text, start)
        at, end = (found.end() if found is not None else start), len(text)
        self._writer.read(text[start:at])
        if at == end:
            return at
        mark = self._mark_at(text, at)
        if mark is None:
            if self._layout.item:
                self._writer.break_off()
                self._lose()
            else:
                self._begin_call()
            return at
        if not mark:
            self._held = text[at:]
            return end
        self._take_mark(mark)
        return at + len(mark)

    def _mark_at(self, text: str, at: int) -> str | None:
        """The mark that stands there; "" where one may; None where none does."""
        for mark in self._gap_marks:
            if text.startswith(mark, at):
                return mark
        if len(text) - at >= self._longest_mark:
            return None
        rest = text[at:]
        return "" if any(mark.startswith(rest) for mark in self._gap_marks) else None

    def _take_mark(self, mark: str) -> None:
        """A mark between calls."""
        if mark in self._layout.skips:
            self._writer.read(mark)
        elif mark in self._layout.ends:
            self._writer.read(mark)
            if self._calls:
                self._writer.forget()
            self._writer.break_off()
            self._writer.end()
            self._end_section()
        elif mark in self._layout.begins:
            if self._calls:
                self._writer.forget()
            self._writer.break_off()
            self._writer.end()
            self.begin(mark)
        elif mark == self._layout.item:
            self._writer.read(mark)
            self._begin_call()
        else:
            self._writer.read(mark)
            self._writer.break_off()
            self._lose()

    def _read_behind(self, text: str, start: int) -> int:
        """Look for the next mark, behind a payload or behind what did not fit."""
        found = self._marks.find(text, start)
        end = found.start() if found is not None else self._marks.safe_end(text, start)
        between = text[start:end]
        if self._state == _TAIL and between and not between.isspace():
            self._writer.break_off()
            self._state = _LOST
        self._writer.read(between)
        if found is None:
            self._held = text[end:]
            return len(text)
        mark = found.group()
        if mark == self._layout.item_end:
            self._writer.read(mark)
            self._end_call()
        elif mark in self._layout.ends:
            if self._state == _LOST:
                self._writer.read(mark)
            self._end_call()
            self._end_section()
        elif mark == self._layout.item:
            self._end_call()
            self.is_idle = False
            self._writer.read(mark)
            self._begin_call()
        else:
            self._end_call()
            self.begin(mark)
        return found.end()
