"""<|tool_call|>[{"name": …, "arguments": {…}}], without an end mark.

Source: chat templates of Granite 3. Some of these models write the mark as <tool_call>, as vLLM's parser allows.
Granite 4 writes the format of hermes.py.
"""

from __future__ import annotations

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls

_LAYOUT = Layout(begins=("<|tool_call|>", "<tool_call>"), ends=("]",), gap="[,")


class GraniteCalls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(_LAYOUT, CallObject)
