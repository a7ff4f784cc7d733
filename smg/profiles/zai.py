"""z.ai (GLM): its effort levels, functions alone as tools, no files, and an output limit within the context.

GLM-5.3 has three levels and always thinks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from smg.profiles.base import (
    MAX_FAULTS,
    Profile,
    adaptive_faults,
    effort_faults,
    fill_sampling,
    set_template_variable,
    template_variables,
)
from smg.validation.texts import read_object, shown

if TYPE_CHECKING:
    from smg.validation.texts import Fault
    from smg_proto.chat.v1 import chat_pb2

EFFORTS: tuple[str, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_CLEAR = "clear_thinking"


class Zai(Profile):
    """Models without defaults of their own."""

    name = "zai"
    pattern: ClassVar[re.Pattern[str] | None] = re.compile("glm|zai|z-ai")
    bounds_output = True
    efforts: ClassVar[tuple[str, ...]] = EFFORTS

    def faults(self, request: chat_pb2.ChatRequest) -> list[Fault]:
        """The thinking control, the tools and the content parts."""
        faults = adaptive_faults(request) + effort_faults(request, self.efforts)
        for index, tool in enumerate(request.tools):
            if tool.type not in ("function", ""):
                field = f"tools[{index}].type"
                faults.append((field, f"{field} is {shown(tool.type)}; only function is allowed"))
        for index, message in enumerate(request.messages):
            if len(faults) >= MAX_FAULTS:
                break
            for number, part in enumerate(message.parts.parts):
                field = f"messages[{index}].content[{number}]"
                if part.other_json and _kind(part.other_json) == "file_url":
                    faults.append(
                        (field, f"{field} is of type file_url; files are not fetched for the model")
                    )
        return faults

    def rewrite(self, request: chat_pb2.ChatRequest) -> None:
        """The template is told whether the reasoning of earlier turns is dropped."""
        if request.thinking.HasField(_CLEAR) and _CLEAR not in template_variables(request):
            set_template_variable(request, _CLEAR, request.thinking.clear_thinking)


class ZaiDefaults(Zai):
    """GLM-4.6, GLM-4.7 and GLM-5.x, which have sampling defaults."""

    pattern: ClassVar[re.Pattern[str] | None] = re.compile(r"glm[-_]?(?:5(?!\d)|4[.-][67](?!\d|b\b))")

    def rewrite(self, request: chat_pb2.ChatRequest) -> None:
        """The vendor's sampling where the request has none."""
        super().rewrite(request)
        fill_sampling(request, temperature=1.0, top_p=0.95)


class ZaiGlm53(ZaiDefaults):
    """The GLM-5.3 models."""

    name = "zai_glm53"
    pattern: ClassVar[re.Pattern[str] | None] = re.compile(r"glm(?:[-_]?5\.3|-?5-3)")
    efforts = ("low", "high", "max")

    def faults(self, request: chat_pb2.ChatRequest) -> list[Fault]:
        """As z.ai's, and thinking stays on."""
        faults = super().faults(request)
        if request.thinking.type == "disabled":
            sentence = "thinking.type is 'disabled'; this model always thinks, allowed is enabled"
            faults.append(("thinking.type", sentence))
        return faults


def _kind(part_json: str) -> Any:
    return read_object(part_json, "part")[0].get("type")
