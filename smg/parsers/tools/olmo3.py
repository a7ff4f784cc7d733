"""<function_calls>f(a=1), a line break, g(b="x")</function_calls>.

Source: chat template of OLMo 3. How a call is written is told in python_call.py.
"""

from __future__ import annotations

from smg.parsers.tools.layout import Layout
from smg.parsers.tools.python_call import PythonCall
from smg.parsers.tools.sections import SectionCalls

_LAYOUT = Layout(begins=("<function_calls>",), ends=("</function_calls>",), gap="[,]")


class Olmo3Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(_LAYOUT, PythonCall)
