"""Which formats a model writes calls and reasoning in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.parsers.choose import always_reasons, reasoning_parser_name, reasons_first, tool_parser_name
from smg.parsers.harmony import HARMONY
from smg.parsers.reasoning import REASONING_PARSERS

if TYPE_CHECKING:
    from smg.prompt.builder import PromptBuilder


@dataclass(frozen=True, slots=True)
class OutputFormats:
    """Names of a model's formats.

    Attributes:
        tools: of its calls.
        reasoning: of its reasoning; None where it does not reason.
        reasons_first: while it thinks, its answers begin inside reasoning, tag or no tag.
        always_reasons: they do though its template knows no reasoning.
        holds_native: forced calls are held to the format of its calls, where that is possible; else to JSON.
    """

    tools: str
    reasoning: str | None
    reasons_first: bool = False
    always_reasons: bool = False
    holds_native: bool = False

    @property
    def label(self) -> str:
        """Both names, as answers tell them."""
        return f"tools={self.tools}; reasoning={self.reasoning or 'none'}"

    @property
    def is_harmony(self) -> bool:
        """Channels tell reasoning, calls and content apart; one parser reads them all."""
        return self.reasoning == HARMONY


@dataclass(frozen=True, slots=True)
class FormatSettings:
    """What the operator says of all models; None leaves it to the model's template.

    Attributes:
        tools: name of a format of calls. reasoning: and of reasoning.
        holds_native: forced calls are held to the model's own format where that is possible.
    """

    tools: str | None = None
    reasoning: str | None = None
    holds_native: bool = False

    def formats_of(self, model_id: str, builder: PromptBuilder) -> OutputFormats:
        """The formats of a model."""
        if builder.is_harmony:
            return OutputFormats(HARMONY, HARMONY)
        seen = (model_id, builder.template_text, builder.tokenizer.has_token)
        named = REASONING_PARSERS.get(self.reasoning or "")
        reasoning = self.reasoning or reasoning_parser_name(*seen)
        return OutputFormats(
            self.tools or tool_parser_name(*seen),
            reasoning,
            reasons_first(model_id) or (named is not None and named.reasons_first),
            always_reasons(model_id),
            self.holds_native,
        )
