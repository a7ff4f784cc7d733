"""<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value>…</tool_call>; white space between the tags or none.

Source: chat templates of GLM-4.5 and GLM-4.6 (a line break behind the name and between the tags), and of GLM-4.7 and
GLM-5 (nothing between). A string is all that stands in its tags; some versions of vLLM and SGLang strip it, others not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from smg.parsers.markers import Markers
from smg.parsers.tools.heads import HeadShape
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls
from smg.parsers.tools.xml_call import XmlCall, XmlShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.parsers.tools.base import ToolSchema

_END = "</tool_call>"
_KEY, _KEY_END = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"
_SHAPE = XmlShape(
    name=HeadShape(_KEY, _END),
    name_pattern=re.compile(rf"\s*(?P<name>[^\s<>{{}}\"]+)\s*(?:{_KEY}|{_END})"),
    key=_KEY,
    end=_END,
    between=HeadShape(_KEY, _END, only_space=True),
    key_head=HeadShape(_KEY_END),
    key_pattern=re.compile(rf"\s*(?P<key>.+?)\s*{_KEY_END}", re.DOTALL),
    value_begin=HeadShape(_VALUE, only_space=True),
    value_end=Markers((_VALUE_END,)),
)
_LAYOUT = Layout(
    item="<tool_call>",
    item_end=_END,
    reads_end=True,
    inner=(_KEY, _KEY_END, _VALUE, _VALUE_END),
)


class Glm45Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(_LAYOUT, lambda writer: XmlCall(_SHAPE, tools, writer))
