"""<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>…

… and <|tool_calls_section_end|>. Source: the tool calling guide and chat template of Kimi-K2. `functions.f:0` is the
call's id, its number counting through the conversation; the name is what stands between the first dot and the colon.
vLLM knows a spelling of the section's marks without the first plural as well.
"""

from __future__ import annotations

import re

from smg.parsers.tools.heads import HeadShape
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.named_object import NamedObject, NamedShape
from smg.parsers.tools.sections import SectionCalls

_ARGUMENTS = "<|tool_call_argument_begin|>"
_SHAPE = NamedShape(
    HeadShape(_ARGUMENTS, stops="{"),
    re.compile(rf"\s*(?P<id>(?:functions\.)?(?P<name>[^\s<>:]+?)(?::[0-9]+)?)\s*{re.escape(_ARGUMENTS)}"),
)
_LAYOUT = Layout(
    begins=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
    ends=("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
    item="<|tool_call_begin|>",
    item_end="<|tool_call_end|>",
    inner=(_ARGUMENTS,),
)


class KimiK2Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(_LAYOUT, lambda writer: NamedObject(_SHAPE, writer))
