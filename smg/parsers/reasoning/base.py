"""What a reasoning format is: a tag that opens reasoning and one that closes it.

Both tags are markup wherever they stand outside of a call, and are never shown: the opening one makes what follows
reasoning, the closing one makes it content. So a second block is reasoning again, an opening tag inside of reasoning
and a closing one outside of it do nothing but vanish, and reasoning that is never closed is reasoning to the end.

White space that the model writes before an opening tag at the very beginning of its answer goes with the tag. All other
white space is kept where it stands.
"""

from __future__ import annotations

from typing import NamedTuple


class ReasoningFormat(NamedTuple):
    """A format.

    Attributes:
        opening: the tag that opens reasoning. closing: and the one that closes it.
        reasons_first: whenever these models think, their answer begins inside reasoning, mostly without the tag.
        interrupts: markers of calls that end reasoning which its tag has not closed, where calls are looked for. Other
            calls inside of reasoning are reasoning.
        wrappers: tags around the answer. They are never shown; what follows one is content.
    """

    opening: str
    closing: str
    reasons_first: bool = False
    interrupts: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()


class ReasoningParser:
    """State of one choice: whether the text stands inside of reasoning.

    Attributes:
        tags: the texts to look for, and to tell switch() about.
        closing: that of them which ends reasoning.
        interrupts: as ReasoningFormat.
        is_inside: whether what comes next is reasoning.
    """

    __slots__ = ("_opening", "closing", "interrupts", "is_inside", "tags")

    def __init__(self, tags: ReasoningFormat, *, starts_inside: bool) -> None:
        self.tags: tuple[str, ...] = (tags.opening, tags.closing, *tags.wrappers)
        self._opening = tags.opening
        self.closing = tags.closing
        self.interrupts = tags.interrupts
        self.is_inside = starts_inside

    def switch(self, tag: str) -> bool:
        """A tag has been read; returns is_inside."""
        self.is_inside = tag == self._opening
        return self.is_inside
