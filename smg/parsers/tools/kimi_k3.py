"""<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>… and an argument <|open|>argument key="k" type="string"<|sep|>value.

Each is closed: <|close|>argument<|sep|>, <|close|>call<|sep|>, <|close|>tools<|sep|>. A value of another type than string
is JSON. In names, & and " are written as entities. Source: SGLang's and TensorRT-LLM's parsers of Kimi-K3, after the
encoding that is published with the model. A call whose arguments are one block of JSON (<|open|>json …), which the
encoding knows for histories, is not read.
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

_ARGUMENT, _ARGUMENT_END = "<|open|>argument", "<|close|>argument<|sep|>"
_END = "<|close|>call<|sep|>"
_SHAPE = XmlShape(
    name=HeadShape("<|sep|>"),
    name_pattern=re.compile(r'\s+tool="(?P<name>[^"]+)"(?:\s+index="[^"]*")?\s*<\|sep\|>'),
    key=_ARGUMENT,
    end=_END,
    between=HeadShape(_ARGUMENT, _END, only_space=True),
    key_head=HeadShape("<|sep|>"),
    key_pattern=re.compile(r'\s+key="(?P<key>[^"]+)"(?:\s+type="(?P<is_string>\w+)")?\s*<\|sep\|>'),
    value_end=Markers((_ARGUMENT_END,)),
    has_entities=True,
)
_LAYOUT = Layout(
    begins=("<|open|>tools<|sep|>",),
    ends=("<|close|>tools<|sep|>",),
    item="<|open|>call",
    item_end=_END,
    reads_end=True,
    inner=(_ARGUMENT, _ARGUMENT_END),
)


class KimiK3Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(_LAYOUT, lambda writer: XmlCall(_SHAPE, tools, writer))
