"""DSML (dsml.py) in sections <｜DSML｜ calls>, with a space before the name in every tag.

Source: SGLang's detector for DeepSeek-V4.1, which says that the spaces are meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.tools.dsml import DsmlCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.parsers.tools.base import ToolSchema


class DeepseekV41Calls(DsmlCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(tools, "calls", space=" ")
