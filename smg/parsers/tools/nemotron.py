"""<TOOLCALL>[{"name": …, "arguments": {…}}]</TOOLCALL>.

Source: chat templates of Llama-3.1-Nemotron (Nano, Super, Ultra) and Nemotron Nano 2. Nemotron 3 writes the format of
qwen3_coder.py.
"""

from __future__ import annotations

from smg.parsers.tools.call_object import CallObject
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls

_LAYOUT = Layout(begins=("<TOOLCALL>",), ends=("</TOOLCALL>",), gap="[,]")


class NemotronCalls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(_LAYOUT, CallObject)
