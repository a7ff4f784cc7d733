"""The marks of deepseek_v31.py around function<｜tool▁sep｜>f, a line break and the arguments in a fenced block of JSON.

Source: chat templates of DeepSeek-V3-0324 and DeepSeek-R1-0528.
"""

from __future__ import annotations

import re

from smg.parsers.tools.deepseek_v31 import LAYOUT, SEPARATOR
from smg.parsers.tools.heads import HeadShape
from smg.parsers.tools.named_object import NamedObject, NamedShape
from smg.parsers.tools.sections import SectionCalls

_FENCE = "```json"
_SHAPE = NamedShape(
    HeadShape(_FENCE, inner=(SEPARATOR,), stops="{"),
    re.compile(rf"\s*function\s*{SEPARATOR}\s*(?P<name>[^\s<>]+)\s*{_FENCE}"),
    tail=HeadShape("```", only_space=True),
)


class DeepseekV3Calls(SectionCalls):
    """A ToolParser."""

    def __init__(self) -> None:
        super().__init__(LAYOUT, lambda writer: NamedObject(_SHAPE, writer))
