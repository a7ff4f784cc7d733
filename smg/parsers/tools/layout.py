"""The marks that structure a format of calls, as sections.py reads it."""

from __future__ import annotations

from typing import NamedTuple


class Layout(NamedTuple):
    """The marks of a format.

    Attributes:
        begins: marks of a section; none where calls stand alone.
        ends: marks that end it.
        item: mark of a call. Empty: a call begins with the first character that is no space, gap or mark.
        item_end: mark of its end; empty where there is none.
        reads_end: the payload reads item_end itself.
        gap: characters beside white space that may stand between calls.
        skips: marks that may.
        first: as ToolParser.
        is_single: a section holds one call.
        is_bare: a call's mark counts outside of sections too; an end mark behind such a call goes with it.
        inner: marks that payloads know, for `markup`.
    """

    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    item: str = ""
    item_end: str = ""
    reads_end: bool = False
    gap: str = ""
    skips: tuple[str, ...] = ()
    first: str = ""
    is_single: bool = False
    is_bare: bool = False
    inner: tuple[str, ...] = ()

    @property
    def marks(self) -> tuple[str, ...]:
        """All that structure the section."""
        return tuple(filter(None, (*self.begins, *self.ends, self.item, self.item_end)))
