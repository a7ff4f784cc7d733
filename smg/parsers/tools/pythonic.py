"""[f(a=1), g(b="x")] at the beginning of the answer, or between <|python_start|> and <|python_end|>.

Source: Meta's description of Llama 3.2 and Llama 4; the marks are those of Llama 4, which vLLM's parser drops. How a
call is written is told in python_call.py.
"""

from __future__ import annotations

from smg.parsers.tools.call_writer import CallWriter
from smg.parsers.tools.choice_of_parsers import ParserChoice
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.python_call import PythonCall
from smg.parsers.tools.sections import SectionCalls

_TAGGED = Layout(begins=("<|python_start|>",), ends=("<|python_end|>",), gap="[,]")
_PLAIN = Layout(ends=("]",), gap="[,", first="[")


class PythonicCalls(ParserChoice):
    """A ToolParser."""

    def __init__(self) -> None:
        writer = CallWriter()
        super().__init__(
            SectionCalls(_TAGGED, PythonCall, writer=writer), SectionCalls(_PLAIN, PythonCall, writer=writer)
        )
