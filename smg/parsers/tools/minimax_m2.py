"""<minimax:tool_call><invoke name="f"><parameter name="key">value</parameter></invoke>…</minimax:tool_call>.

Source: chat template of MiniMax-M2. Older parsers of vLLM and SGLang strip values; the template writes them as they are,
so they are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.tools.invoke_call import invoke_shape
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls
from smg.parsers.tools.xml_call import XmlCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.parsers.tools.base import ToolSchema

_SHAPE = invoke_shape("</invoke>", "<parameter", "</parameter>")
_LAYOUT = Layout(
    begins=("<minimax:tool_call>",),
    ends=("</minimax:tool_call>",),
    item="<invoke",
    item_end=_SHAPE.end,
    reads_end=True,
)


class MinimaxM2Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(_LAYOUT, lambda writer: XmlCall(_SHAPE, tools, writer))
