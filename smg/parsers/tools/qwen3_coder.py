"""<tool_call><function=name><parameter=key>value</parameter>…</function></tool_call>, with line breaks between the tags.

Source: chat templates of Qwen3-Coder, Qwen3.5 and Nemotron 3. One line break before and one behind a value is markup.
The models leave <tool_call> out at times, so that <function= counts by itself; and several functions may share one pair.
vLLM and SGLang take a value without </parameter> up to the next tag; here it goes on to the first </parameter>.
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

SHAPE = XmlShape(
    name=HeadShape(">", stops="<\r\n"),
    name_pattern=re.compile(r"\s*(?P<name>\S+?)\s*>"),
    key="<parameter=",
    end="</function>",
    between=HeadShape("<parameter=", "</function>", only_space=True),
    key_head=HeadShape(">", stops="<\r\n"),
    key_pattern=re.compile(r"\s*(?P<key>[^>]+?)\s*>"),
    value_end=Markers(("</parameter>",)),
    trims_newlines=True,
)
_LAYOUT = Layout(
    begins=("<tool_call>",),
    ends=("</tool_call>",),
    item="<function=",
    item_end=SHAPE.end,
    reads_end=True,
    is_bare=True,
)


class Qwen3CoderCalls(SectionCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(_LAYOUT, lambda writer: XmlCall(SHAPE, tools, writer))
