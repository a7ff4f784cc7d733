"""Turns the text of one choice into pieces: reasoning, then content and calls, however the text is cut.

What is reasoning is decided first: a call inside of reasoning is reasoning, unless its format says that calls of this
model end it. Inside of a call nothing is looked for but
the call's end, so that tags in an argument are text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from smg.parsers.content import AnswerContent
from smg.parsers.events import Content, Reasoning
from smg.parsers.markers import Markers
from smg.parsers.pieces import PieceList

if TYPE_CHECKING:
    from smg.parsers.events import Piece
    from smg.parsers.reasoning.base import ReasoningParser
    from smg.parsers.tools.base import ToolParser


class OutputParser:
    """State of one choice.

    Attributes:
        openers: the characters with which anything begins that matters while `lane` is set. Constant.
        lane: not None while nothing is held: a text without any of the openers is one piece of that kind, unchanged,
            and need not come through feed(). None: everything must.
        is_reasoning: what comes next stands inside of reasoning.
        markup: texts with a meaning in the formats. A special token that stands in one must not be left out of the text.
    """

    def __init__(
        self,
        reasoning: ReasoningParser | None,
        tools: ToolParser | None,
        *,
        max_calls: int | None = None,
        hold_reasoning: bool = False,
    ) -> None:
        """Take fresh parsers.

        Args:
            reasoning: None where reasoning stays part of the content.
            tools: None where calls do.
            max_calls: at least 1; calls behind so many complete ones are dropped. None for any number.
            hold_reasoning: give each block of reasoning out in one piece, when it closes or at the end.
        """
        self.is_reasoning = reasoning is not None and reasoning.is_inside
        self._reasoning = reasoning
        self._tools = tools
        tags = reasoning.tags if reasoning is not None else ()
        calls = tools.markers if tools is not None else ()
        self._inner_markers = _markers((*tags, *(each for each in _interrupts(reasoning) if each in calls)))
        self._all_markers = _markers((*tags, *calls))
        self.markup: tuple[str, ...] = (*tags, *(tools.markup if tools is not None else ()))
        self.openers = self._all_markers.openers
        self._out = PieceList()
        self._content = AnswerContent(self._out, max_calls=max_calls, is_blank=tools is not None)
        self._held = ""  # may become a marker
        # White space at the very beginning, which goes with an opening tag; None as soon as that is decided.
        self._leading: list[str] | None = None if reasoning is None else []
        self._block: list[str] | None = [] if hold_reasoning else None
        # White space with which a block of reasoning begins; a block with nothing else is none. None behind it.
        self._blank: list[str] | None = []
        self.lane: Literal["content", "reasoning"] | None = self._find_lane()

    def feed(self, text: str) -> list[Piece]:
        """Take the next text, of any length; returns what is certain."""
        if not text:
            return []
        lane = self.lane
        if lane is not None and not self._all_markers.may_begin_in(text):
            return [Content(text)] if lane == "content" else [Reasoning(text)]
        if self._held:
            text, self._held = self._held + text, ""
        at = 0
        while at < len(text):
            if self._tools is None or self._tools.is_idle:
                at = self._read_text(text, at)
            else:
                at = self._tools.feed(text, at)
                self._content.calls(self._tools.take())
        self.lane = self._find_lane()
        return self._out.take()

    def finish(self, *, is_cut: bool) -> list[Piece]:
        """The text is over. Called once, and nothing is fed after it.

        Args:
            is_cut: something else than the model ended it: the token limit, a stop string, an abort. A call that may
                lack its end does not count then.
        """
        if self._tools is not None and not self._tools.is_idle:
            self._tools.finish(is_cut=is_cut)
            self._content.calls(self._tools.take())
        if self._held:
            held, self._held = self._held, ""
            self._write(held)
        self._give_leading()
        self._give_block()
        self._content.finish()
        self.lane = None
        return self._out.take()

    def _find_lane(self) -> Literal["content", "reasoning"] | None:
        if self._held or self._leading is not None:
            return None
        if self.is_reasoning:
            return "reasoning" if self._block is None and self._blank is None else None
        if self._content.is_blank or not (self._tools is None or self._tools.is_idle):
            return None
        return "content"

    def _read_text(self, text: str, at: int) -> int:
        """Read to the next marker, and over it; returns where it stopped."""
        markers = self._inner_markers if self.is_reasoning else self._all_markers
        found = markers.find(text, at)
        end = found.start() if found is not None else markers.safe_end(text, at)
        if at < end:
            call = self._find_call(text, at, end)
            if call is not None:
                self._write(text[at:call])
                self._begin_call("")
                return call
            self._write(text[at:end])
        if found is None:
            self._held = text[end:]
            return len(text)
        self._read_marker(found.group())
        return found.end()

    def _find_call(self, text: str, start: int, end: int) -> int | None:
        """Where a call begins, in a format without markers."""
        if self._tools is None or not self._tools.first or self.is_reasoning:
            return None
        if not self._content.is_blank or self._content.has_text:
            return None
        at = start
        while at < end and text[at].isspace():
            at += 1
        return at if at < end and text[at] in self._tools.first else None

    def _read_marker(self, marker: str) -> None:
        reasoning = self._reasoning
        is_tag = reasoning is not None and marker in reasoning.tags
        if reasoning is not None and (is_tag or self.is_reasoning):
            self._switch(reasoning, marker if is_tag else reasoning.closing)
        if not is_tag:
            self._begin_call(marker)

    def _switch(self, reasoning: ReasoningParser, tag: str) -> None:
        was_inside = self.is_reasoning
        is_inside = reasoning.switch(tag)
        if is_inside:
            self._leading = None
        self._give_leading()
        self.is_reasoning = is_inside
        if was_inside != is_inside:
            self._blank = []
        if was_inside and not is_inside:
            self._give_block()
            if self._tools is not None:
                self._content.reasoning_ended()

    def _begin_call(self, marker: str) -> None:
        self._give_leading()
        if self._tools is not None:
            self._tools.begin(marker)

    def _write(self, text: str) -> None:
        """Text of the current kind."""
        if self._leading is not None:
            if text.isspace():
                self._leading.append(text)
                return
            self._give_leading()
        if not self.is_reasoning:
            self._content.text(text)
        else:
            self._write_reasoning(text)

    def _write_reasoning(self, text: str) -> None:
        if self._blank is not None:
            self._blank.append(text)
            if text.isspace():
                return
            text, self._blank = "".join(self._blank), None
        if self._block is None:
            self._out.reasoning(text)
        else:
            self._block.append(text)

    def _give_leading(self) -> None:
        if self._leading is not None:
            leading, self._leading = "".join(self._leading), None
            if leading:
                self._write(leading)

    def _give_block(self) -> None:
        if self._block:
            self._out.reasoning("".join(self._block))
            self._block.clear()


@lru_cache
def _markers(texts: tuple[str, ...]) -> Markers:
    """One object for all answers in the same formats: there are few."""
    return Markers(texts)


def _interrupts(reasoning: ReasoningParser | None) -> tuple[str, ...]:
    return reasoning.interrupts if reasoning is not None else ()
