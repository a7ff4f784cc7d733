"""<|tool_call>call:f{key:<|"|>text<|"|>,n:5}<tool_call|>, one pair of marks a call.

Source: chat template of Gemma 4. How a call is written is told in gemma_call.py.
"""

from __future__ import annotations

from smg.parsers.tools.gemma_call import GemmaCall, QuoteMark
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls

_QUOTE = QuoteMark('<|"|>')
_LAYOUT = Layout(item="<|tool_call>", item_end="<tool_call|>", inner=(_QUOTE.text,))


class Gemma4Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(_LAYOUT, lambda writer: GemmaCall(_QUOTE, writer))
