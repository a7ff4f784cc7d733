"""The simplest shape of calls: a marker that begins a call, the call, a marker that ends it.

A format gives the two markers and a payload: what reads the call between them. When a call counts, and which text is
that of a broken one, is told in sections.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.parsers.tools.call_writer import CallWriter


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


class TaggedCalls(SectionCalls):
    """A ToolParser."""

    def __init__(self, begin: str, end: str, payload: Callable[[CallWriter], Payload]) -> None:
        """Take the two markers, and what makes the payload of each call."""
        super().__init__(Layout(item=begin, item_end=end), payload)
