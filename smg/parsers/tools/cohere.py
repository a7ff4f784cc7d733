"""<|START_ACTION|>[{"tool_call_id": "0", "tool_name": …, "parameters": {…}}]<|END_ACTION|>.

Source: chat templates of Command R7B and Command A. The ids count from 0 in every answer, so they are no ids for a
conversation and are left out. The tags around the answer are told in reasoning/cohere.py.
"""

from __future__ import annotations

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls

_LAYOUT = Layout(begins=("<|START_ACTION|>",), ends=("<|END_ACTION|>",), gap="[,]")


class CohereCalls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(_LAYOUT, lambda writer: CallObject(writer, name_key="tool_name"))
