"""[{"name": …, "arguments": {…}}] as the whole answer, in a fenced block of JSON, or behind [TOOL_CALLS].

Source: model cards of xLAM 2; the block and the mark are what vLLM's parser allows beside. The array between <tool_call>
and </tool_call> that it allows as well is read too.
"""

from __future__ import annotations

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.call_writer import CallWriter
from smg.parsers.tools.choice_of_parsers import ParserChoice
from smg.parsers.tools.json_calls import JsonCalls
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls

_FENCED = Layout(begins=("```json",), gap="[,]`")
_MARKED = Layout(begins=("[TOOL_CALLS]",), ends=("]",), gap="[,")
_TAGGED = Layout(begins=("<tool_call>",), ends=("</tool_call>",), gap="[,]")


def _call(writer: CallWriter) -> CallObject:
    return CallObject(writer, needs_arguments=True)


class XlamCalls(ParserChoice):
    """A ToolParser."""

    def __init__(self) -> None:
        writer = CallWriter()
        marked = (SectionCalls(each, _call, writer=writer) for each in (_FENCED, _MARKED, _TAGGED))
        super().__init__(*marked, JsonCalls(writer=writer))
