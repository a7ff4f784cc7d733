"""<seed:tool_call><function=name><parameter=key>value</parameter>…</function></seed:tool_call>.

Source: chat template of Seed-OSS. Beside the outer tags it is the format of qwen3_coder.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.parsers.tools.layout import Layout
from smg.parsers.tools.qwen3_coder import SHAPE
from smg.parsers.tools.sections import SectionCalls
from smg.parsers.tools.xml_call import XmlCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.parsers.tools.base import ToolSchema

_LAYOUT = Layout(
    begins=("<seed:tool_call>",),
    ends=("</seed:tool_call>",),
    item="<function=",
    item_end=SHAPE.end,
    reads_end=True,
)


class SeedOssCalls(SectionCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(_LAYOUT, lambda writer: XmlCall(SHAPE, tools, writer))
