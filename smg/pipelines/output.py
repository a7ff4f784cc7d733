"""Makes the stages that turn one sequence's tokens into pieces of an answer: how, and fresh ones for each choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.parsers.harmony import HARMONY, HarmonyParser
from smg.parsers.output import OutputParser
from smg.parsers.reasoning import reasoning_parser
from smg.parsers.tools import tool_parser
from smg.parsers.tools.forced import NamedCall, RequiredCalls

if TYPE_CHECKING:
    from smg.parsers.tools.base import ToolParser, ToolSchema


@dataclass(frozen=True, slots=True)
class OutputForm:
    """What a choice's text is made of beside content.

    Attributes:
        reasoning: name of the reasoning format to tell apart; None to leave reasoning in the content.
        starts_inside: the output begins inside reasoning.
        tools: name of the format of calls; None where no call may come.
        schemas: the functions that may be called.
        forced: calls are required: the output is the JSON that the constraint made, not the model's own format.
        forced_name: the one function that must be called; its arguments are all there is. Empty: any.
        one_call: drop every call after the first.
        hold_reasoning: give the reasoning out in one piece.
        separates: of formats whose reasoning must be read all the same: tell it apart.
        is_open: the output goes on with a message, and begins with none of its own.
    """

    reasoning: str | None = None
    starts_inside: bool = False
    tools: str | None = None
    schemas: tuple[ToolSchema, ...] = ()
    forced: bool = False
    forced_name: str = ""
    one_call: bool = False
    hold_reasoning: bool = False
    separates: bool = True
    is_open: bool = False

    def parser(self) -> OutputParser | HarmonyParser | None:
        """State for one choice; None where text is content and nothing else."""
        max_calls = 1 if self.one_call else None
        if self.reasoning == HARMONY and not self.forced:
            return HarmonyParser(
                takes_calls=self.tools is not None,
                separates=self.separates,
                is_open=self.is_open,
                max_calls=max_calls,
                hold_reasoning=self.hold_reasoning,
            )
        tools = self._tools()
        reasoning = None
        if self.reasoning is not None and self.reasoning != HARMONY:
            reasoning = reasoning_parser(self.reasoning, starts_inside=self.starts_inside)
        if tools is None and reasoning is None:
            return None
        return OutputParser(reasoning, tools, max_calls=max_calls, hold_reasoning=self.hold_reasoning)

    def _tools(self) -> ToolParser | None:
        if self.forced:
            return NamedCall(self.forced_name) if self.forced_name else RequiredCalls()
        return None if self.tools is None else tool_parser(self.tools, self.schemas)


PLAIN = OutputForm()
