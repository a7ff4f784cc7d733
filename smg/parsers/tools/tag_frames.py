"""How calls stand in an answer that is nothing but calls, for the formats that xgrammar's structural tags alone can say.

Their arguments are no JSON, or their marks are special tokens of the vocabulary. What stands between the marks is a style of
xgrammar's JSON Schema format. Source: xgrammar 0.2, "Structural Tag" and its built-in tags; the formats' own files name
where the formats come from.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[^\s<>\"'=:/\\\[\]|｜]+")
_NUMBER = {"type": "regex", "pattern": "[0-9]+"}


class TagFrame(NamedTuple):
    """The texts around calls.

    Attributes:
        before: behind it stands the function's name. key: between the name and the arguments.
        after: behind the arguments.
        style: of the arguments, as xgrammar calls it.
        separator: between two calls.
        opening: before the first call. closing: behind the last one.
        is_numbered: a number stands between `key` and `behind_number`.
        behind_number: between the number and the arguments.
    """

    before: str
    key: str
    after: str
    style: str = "json"
    separator: str = ""
    opening: str = ""
    closing: str = ""
    is_numbered: bool = False
    behind_number: str = ""

    def takes(self, name: str) -> bool:
        """Whether a function of that name can be told from the marks around it."""
        return _NAME.fullmatch(name) is not None

    def begin(self, name: str) -> str:
        """Everything of a call before its number or its arguments."""
        return self.before + name + self.key

    def content(self, schema: Any) -> dict[str, Any]:
        """What stands between begin and end of a call, as a format of a structural tag."""
        arguments: dict[str, Any] = {"type": "json_schema", "json_schema": schema}
        if self.style != "json":
            arguments["style"] = self.style
        if not self.is_numbered:
            return arguments
        text = {"type": "const_string", "value": self.behind_number}
        return {"type": "sequence", "elements": [_NUMBER, text, arguments]}


def _dsml(section: str, style: str, space: str = "") -> TagFrame:
    prefix = f"｜DSML｜{space}"
    return TagFrame(
        f'<{prefix}invoke name="',
        '">\n',
        f"</{prefix}invoke>\n",
        style,
        opening=f"<{prefix}{section}>\n",
        closing=f"</{prefix}{section}>",
    )


def _function(tag: str) -> TagFrame:
    return TagFrame(f"<{tag}>\n<function=", ">\n", f"\n</function>\n</{tag}>", "qwen_xml", "\n")


TAG_FRAMES: Mapping[str, TagFrame] = MappingProxyType(
    {
        "deepseek_v31": TagFrame(
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            opening="<｜tool▁calls▁begin｜>",
            closing="<｜tool▁calls▁end｜>",
        ),
        "deepseek_v32": _dsml("function_calls", "deepseek_xml"),
        "deepseek_v4": _dsml("tool_calls", "deepseek_xml"),
        "deepseek_v41": _dsml("calls", "deepseek_v4_1_xml", space=" "),
        "glm45": TagFrame("<tool_call>", "", "</tool_call>", "glm_xml", "\n"),
        "kimi_k2": TagFrame(
            "<|tool_call_begin|>functions.",
            ":",
            "<|tool_call_end|>",
            opening="<|tool_calls_section_begin|>",
            closing="<|tool_calls_section_end|>",
            is_numbered=True,
            behind_number="<|tool_call_argument_begin|>",
        ),
        "minimax_m2": TagFrame(
            '<invoke name="',
            '">\n',
            "</invoke>\n",
            "minimax_xml",
            opening="<minimax:tool_call>\n",
            closing="</minimax:tool_call>",
        ),
        "minimax_m3": TagFrame(
            ']<]minimax[>[<invoke name="',
            '">',
            "]<]minimax[>[</invoke>\n",
            "minimax_m3_xml",
            opening="]<]minimax[>[<tool_call>\n",
            closing="]<]minimax[>[</tool_call>",
        ),
        "qwen3_coder": _function("tool_call"),
        "seed_oss": _function("seed:tool_call"),
    }
)
