"""<start_function_call>call:f{key:<escape>text<escape>,n:5}<end_function_call>, one pair of marks a call.

Source: model card and chat template of FunctionGemma. How a call is written is told in gemma_call.py.
"""

from __future__ import annotations

from smg.parsers.tools.gemma_call import GemmaCall, QuoteMark
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls

_QUOTE = QuoteMark("<escape>")
_LAYOUT = Layout(item="<start_function_call>", item_end="<end_function_call>", inner=(_QUOTE.text,))


class FunctionGemmaCalls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(_LAYOUT, lambda writer: GemmaCall(_QUOTE, writer))
