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
    """The two tags of a format."""

    opening: str
    closing: str


class ReasoningParser:
    """State of one choice: whether the text stands inside of reasoning.

    Attributes:
        tags: the texts to look for, and to tell switch() about.
        is_inside: whether what comes next is reasoning.
    """

    __slots__ = ("_opening", "is_inside", "tags")

    def __init__(self, tags: ReasoningFormat, *, starts_inside: bool) -> None:
        self.tags: tuple[str, ...] = tuple(tags)
        self._opening = tags.opening
        self.is_inside = starts_inside

    def switch(self, tag: str) -> bool:
        """A tag has been read; returns is_inside."""
        self.is_inside = tag == self._opening
        return self.is_inside
