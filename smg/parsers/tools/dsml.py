"""DSML, DeepSeek's markup for calls since V3.2: sections of invokes whose parameters tell whether they are strings.

<｜DSML｜invoke name="f"><｜DSML｜parameter name="key" string="true">value</｜DSML｜parameter></｜DSML｜invoke>; with
string="false" the value is JSON. Without the attribute the tool's schema decides.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from smg.parsers.tools.invoke_call import invoke_shape
from smg.parsers.tools.layout import Layout
from smg.parsers.tools.sections import SectionCalls
from smg.parsers.tools.xml_call import XmlCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.parsers.tools.base import ToolSchema
    from smg.parsers.tools.xml_call import XmlShape

_MARK = "｜DSML｜"  # a special token by itself


class DsmlCalls(SectionCalls):
    """A ToolParser for one generation of the models."""

    def __init__(self, tools: Sequence[ToolSchema], section: str, *, space: str = "") -> None:
        """Take what differs.

        Args:
            tools: of the request.
            section: name of the section's tag.
            space: stands before the name in every tag.
        """
        layout, shape = _format(section, _MARK + space)
        super().__init__(layout, lambda writer: XmlCall(shape, tools, writer))


@lru_cache
def _format(section: str, prefix: str) -> tuple[Layout, XmlShape]:
    shape = invoke_shape(f"</{prefix}invoke>", f"<{prefix}parameter", f"</{prefix}parameter>")
    layout = Layout(
        begins=(f"<{prefix}{section}>",),
        ends=(f"</{prefix}{section}>",),
        item=f"<{prefix}invoke",
        item_end=shape.end,
        reads_end=True,
        inner=(f"<{prefix}parameter", f"</{prefix}parameter>"),
    )
    return layout, shape
