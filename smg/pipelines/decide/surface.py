"""Finds out, once per model, whether and how questions can be asked of it; its card tells what was found."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from smg.decisions.kinds import Kind
from smg.decisions.labels import Labels, find_labels
from smg.decisions.layout import STEM, noul_text
from smg.errors import InvalidRequest, SmgError
from smg.pipelines.off_loop import in_thread
from smg.prompt.framed import MessagePrompts

if TYPE_CHECKING:
    from typing import Literal

    from smg.pipelines.catalog import ModelCatalog, ServedModel
    from smg.prompt.builder import PromptBuilder

    Readout = Literal["labels", "options"]

_log = logging.getLogger(__name__)
_PROBE = noul_text("Is it so?")
MOST_WORDED_OPTIONS = 255


@dataclass(frozen=True, slots=True)
class Surface:
    """What questions one model can answer.

    Attributes:
        prompts: makes its prompts; None where it cannot be prompted.
        labels: by which it answers.
        unsupported: why it cannot be asked; empty where it can.
        label_fault: why it cannot be asked by labels; empty where it can.
        is_hybrid: it can think or not, and is asked with thinking off.
        readout: how answers are read.
    """

    prompts: MessagePrompts | None = None
    labels: Labels = field(default_factory=Labels)
    unsupported: str = ""
    label_fault: str = ""
    is_hybrid: bool = False
    readout: Readout = "labels"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of question that it answers."""
        return () if self.unsupported else tuple(Kind)

    @property
    def max_options(self) -> int:
        """Most options of one choice."""
        return min(255, MOST_WORDED_OPTIONS if self.readout == "options" else self.labels.max_options)


def surface_of(builder: PromptBuilder, readout: str) -> Surface:
    """Look at a model's template and tokenizer. Takes some tens of milliseconds.

    Args:
        builder: of the model.
        readout: "labels", "options" or "auto".
    """
    try:
        prompts = MessagePrompts(builder, STEM, _PROBE)
        if prompts.ends_in_reasoning(_PROBE):
            return Surface(
                unsupported="its chat template leaves a reasoning block open, thinking cannot be turned off"
            )
        labels = find_labels(prompts.token_finder(_PROBE))
    except InvalidRequest as error:
        return Surface(unsupported=error.message)
    fault = "; ".join(labels.faults)
    is_hybrid = bool(prompts.variables)
    if readout == "options" or (fault and readout == "auto"):
        return Surface(prompts, labels, "", fault, is_hybrid, "options")
    return Surface(prompts, labels, fault, fault, is_hybrid, "labels")


class DecisionSurfaces:
    """The surfaces of the served models, each found out once per prompt builder."""

    def __init__(self, readout: str) -> None:
        """Args: readout: as for surface_of."""
        self._readout = readout
        self._known: WeakKeyDictionary[PromptBuilder, asyncio.Task[Surface]] = WeakKeyDictionary()

    async def of(self, model: ServedModel) -> Surface:
        """The surface of a model."""
        task = self._known.get(model.builder)
        if task is None:
            task = asyncio.create_task(in_thread(surface_of, model.builder, self._readout))
            self._known[model.builder] = task
        # One of those who ask may leave.
        return await asyncio.shield(task)

    async def preload(self, catalog: ModelCatalog) -> None:
        """Find out about every served model, ahead of its first request."""
        for model_id in catalog.model_ids():
            try:
                model = await catalog.resolve(model_id)
            except SmgError:
                continue  # whoever asks for the model hears why
            if model.card.capabilities.score:
                surface = await self.of(model)
                if surface.unsupported:
                    _log.info("model %s answers no decisions: %s", model_id, surface.unsupported)
