"""Sections of calls like those of MiniMax, with the tags of Step3.

<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f"><steptml:parameter name="key">value
</steptml:parameter></steptml:invoke><｜tool_call_end｜>…<｜tool_calls_end｜>

Source: chat template of step3. What stands between the mark of a call and its invoke differs in vLLM's and SGLang's
tests (nothing, `function` and the separator, the name in addition), so it is not looked at.
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

_SEPARATOR = "<｜tool_sep｜>"
_SHAPE = invoke_shape(
    "</steptml:invoke>",
    "<steptml:parameter",
    "</steptml:parameter>",
    lead=rf"(?:\s*function\s*{_SEPARATOR}[^<]*)?\s*<steptml:invoke",
    inner=(_SEPARATOR, "<steptml:invoke"),
)
_LAYOUT = Layout(
    begins=("<｜tool_calls_begin｜>",),
    ends=("<｜tool_calls_end｜>",),
    item="<｜tool_call_begin｜>",
    item_end="<｜tool_call_end｜>",
    skips=(_SEPARATOR,),
    inner=(_SEPARATOR,),
)


class Step3Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self, tools: Sequence[ToolSchema] = ()) -> None:
        super().__init__(_LAYOUT, lambda writer: XmlCall(_SHAPE, tools, writer))
