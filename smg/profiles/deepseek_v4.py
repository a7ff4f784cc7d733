"""DeepSeek V4: its effort levels, thinking that is on unless it is turned off, and usage with the last finish.

V4.1 knows xhigh, and a budget from 1 to 100 in place of a level.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from smg.profiles.base import (
    Profile,
    adaptive_faults,
    effort_faults,
    set_template_variable,
    template_variables,
)
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg.validation.texts import Fault
    from smg_proto.chat.v1 import chat_pb2

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SWITCH = "thinking"
_SWITCHES = (_SWITCH, "enable_thinking")
_BUDGETS = frozenset(map(str, range(1, 101)))
_FORCED = (options_pb2.ToolChoice.MODE_REQUIRED, options_pb2.ToolChoice.MODE_FUNCTION)


class DeepSeekV4(Profile):
    """The V4 models."""

    name = "deepseek_v4"
    pattern: ClassVar[re.Pattern[str] | None] = re.compile(r"deepseek-(?:flash|v4-flash|v4-pro)\Z")
    usage_with_finish = True
    efforts: ClassVar[Mapping[str, str]] = {"minimal": "low", "medium": "high", "xhigh": "high"}

    def faults(self, request: chat_pb2.ChatRequest) -> list[Fault]:
        """The thinking control, its overrides, and calls that are forced on a model that thinks."""
        faults = adaptive_faults(request) + self.level_faults(request)
        variables = template_variables(request)
        given = [variables[name] for name in _SWITCHES if variables.get(name) is not None]
        for name in _SWITCHES:
            if not isinstance(variables.get(name), bool | None):
                field = f"chat_template_kwargs.{name}"
                faults.append((field, f"{field} must be true, false or null"))
        if given in ([True, False], [False, True]):
            field = "chat_template_kwargs.thinking"
            faults.append((field, f"{field} and enable_thinking disagree; set one, or both alike"))
        if not faults and request.tool_choice.mode in _FORCED and _thinks(request):
            sentence = "tool_choice asks for a call while thinking is on"
            faults.append(
                ("tool_choice", f"{sentence}; turn it off with thinking.type disabled, or use auto")
            )
        return faults

    def level_faults(self, request: chat_pb2.ChatRequest) -> list[Fault]:
        """What is no effort level."""
        return effort_faults(request, EFFORTS)

    def rewrite(self, request: chat_pb2.ChatRequest) -> None:
        """The levels that the model knows, and the switch that its template reads."""
        thinks = _thinks(request)
        if request.HasField("reasoning_effort"):
            request.reasoning_effort = self.efforts.get(request.reasoning_effort, request.reasoning_effort)
        if request.thinking.HasField("effort"):
            request.thinking.effort = self.efforts.get(request.thinking.effort, request.thinking.effort)
        if template_variables(request).get(_SWITCH) is None:
            set_template_variable(request, _SWITCH, thinks)


class DeepSeekV41(DeepSeekV4):
    """The V4.1 models."""

    name = "deepseek_v41"
    pattern: ClassVar[re.Pattern[str] | None] = re.compile(r"deepseek-v4\.1-flash\Z")
    efforts: ClassVar[Mapping[str, str]] = {"minimal": "low", "medium": "high"}

    def level_faults(self, request: chat_pb2.ChatRequest) -> list[Fault]:
        """A budget is none."""
        faults = effort_faults(request, EFFORTS, ", and whole numbers from 1 to 100")
        given = {"reasoning_effort": request.reasoning_effort, "thinking.effort": request.thinking.effort}
        return [fault for fault in faults if given[fault[0]] not in _BUDGETS]


def _thinks(request: chat_pb2.ChatRequest) -> bool:
    variables = template_variables(request)
    for name in _SWITCHES:
        if isinstance(override := variables.get(name), bool):
            return override
    thinking = request.thinking
    effort = thinking.effort if thinking.HasField("effort") else request.reasoning_effort
    return thinking.type != "disabled" and effort != "none"
