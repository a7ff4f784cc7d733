"""<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>

Source: model card and chat template of DeepSeek-V3.1.
"""

from __future__ import annotations

import re

from smg.parsers.tools.heads import HeadShape
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.named_object import NamedObject, NamedShape
from smg.parsers.tools.sections import SectionCalls

SEPARATOR = "<｜tool▁sep｜>"
LAYOUT = Layout(
    begins=("<｜tool▁calls▁begin｜>",),
    ends=("<｜tool▁calls▁end｜>",),
    item="<｜tool▁call▁begin｜>",
    item_end="<｜tool▁call▁end｜>",
    inner=(SEPARATOR,),
)
_SHAPE = NamedShape(HeadShape(SEPARATOR, stops="{"), re.compile(rf"\s*(?P<name>[^\s<>]+)\s*{SEPARATOR}"))


class DeepseekV31Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(LAYOUT, lambda writer: NamedObject(_SHAPE, writer))
