"""functools[{"name": …, "arguments": {…}}], or the array between <|tool_call|> and <|/tool_call|>.

Source: model card of Phi-4-mini (the tags); vLLM reads `functools`, which the model writes as well.
"""

from __future__ import annotations

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.call_writer import CallWriter
from smg.parsers.tools.choice_of_parsers import ParserChoice
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls

_TAGGED = Layout(begins=("<|tool_call|>",), ends=("<|/tool_call|>",), gap="[,]")
_NAMED = Layout(begins=("functools[",), ends=("]",), gap=",")


class Phi4MiniCalls(ParserChoice):
    """A ToolParser."""

    def __init__(self) -> None:
        writer = CallWriter()
        super().__init__(
            SectionCalls(_TAGGED, CallObject, writer=writer), SectionCalls(_NAMED, CallObject, writer=writer)
        )
