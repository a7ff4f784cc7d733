"""DSML (dsml.py) in sections <｜DSML｜tool_calls>.

Source: the encoding that DeepSeek publishes with DeepSeek-V4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.tools.dsml import DsmlCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.parsers.tools.base import ToolSchema


class DeepseekV4Calls(DsmlCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(tools, "tool_calls")
