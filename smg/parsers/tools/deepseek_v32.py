"""DSML (dsml.py) in sections <｜DSML｜function_calls>.

Source: the encoding that DeepSeek publishes with DeepSeek-V3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.tools.dsml import DsmlCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.parsers.tools.base import ToolSchema


class DeepseekV32Calls(DsmlCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(tools, "function_calls")
