"""Finds out, once per model, whether and how questions can be asked of it; its card tells what was found."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from smg.decisions.kinds import MAX_OPTIONS, Kind
from smg.decisions.labels import Labels, find_labels
from smg.decisions.layout import STEM, noul_text
from smg.decisions.measured import BETTER_WORDED
from smg.errors import InvalidRequest, SmgError
from smg.pipelines.off_loop import in_thread
from smg.prompt.framed import MessagePrompts

if TYPE_CHECKING:
    from smg.pipelines.catalog import ModelCatalog, ServedModel
    from smg.prompt.builder import PromptBuilder

_log = logging.getLogger(__name__)
_PROBE = noul_text("Is it so?")
_ALL = frozenset(Kind)
# A choice with more options is asked by labels where it can be: every option's text is computed by itself.
MOST_WORDED_OPTIONS = 26


@dataclass(frozen=True, slots=True)
class Surface:
    """What questions one model can answer.

    Attributes:
        prompts: makes its prompts; None where it cannot be prompted.
        labels: by which it answers.
        unsupported: why it cannot be asked; empty where it can.
        label_fault: why it cannot be asked by labels; empty where it can.
        is_hybrid: it can think or not, and is asked with thinking off.
        worded: kinds of question whose options' own texts are scored; the others are asked by labels.
    """

    prompts: MessagePrompts | None = None
    labels: Labels = field(default_factory=Labels)
    unsupported: str = ""
    label_fault: str = ""
    is_hybrid: bool = False
    worded: frozenset[Kind] = frozenset()

    @property
    def readout(self) -> str:
        """How answers are read: "labels", "options", or "mixed" where it depends on the kind of question."""
        if not self.worded:
            return "labels"
        return "options" if self.worded == _ALL else "mixed"

    def is_worded(self, kind: Kind, options: int = 0) -> bool:
        """Whether the options' own texts are scored for a question of so many options."""
        if self.label_fault:
            return kind in self.worded
        return kind in self.worded and options <= MOST_WORDED_OPTIONS

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of question that it answers."""
        return () if self.unsupported else tuple(Kind)

    @property
    def max_options(self) -> int:
        """Most options of one choice."""
        return MAX_OPTIONS if self.worded == _ALL else min(MAX_OPTIONS, self.labels.max_options)


def surface_of(builder: PromptBuilder, readout: str, model_id: str = "") -> Surface:
    """Look at a model's template and tokenizer. Takes some tens of milliseconds.

    Args:
        builder: of the model.
        readout: "labels", "options" or "auto".
        model_id: its name, by which measured readouts are known.
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
        return Surface(prompts, labels, "", fault, is_hybrid, _ALL)
    worded = BETTER_WORDED.get(model_id, frozenset[Kind]()) if readout == "auto" else frozenset[Kind]()
    return Surface(prompts, labels, fault, fault, is_hybrid, worded)


class _Found(NamedTuple):
    """What is being, or was, found out about a model with this prompt builder."""

    builder: PromptBuilder
    task: asyncio.Task[Surface]


class DecisionSurfaces:
    """The surfaces of the served models, each found out once, and again when the model gets another tokenizer."""

    def __init__(self, readout: str) -> None:
        """Args: readout: as for surface_of."""
        self._readout = readout
        self._found: dict[str, _Found] = {}

    async def of(self, model: ServedModel) -> Surface:
        """The surface of a model."""
        found = self._found.get(model.id)
        if found is None or found.builder is not model.builder:
            task = asyncio.create_task(in_thread(surface_of, model.builder, self._readout, model.id))
            found = self._found[model.id] = _Found(model.builder, task)
        if found.task.done():
            return found.task.result()
        # One of those who ask may leave.
        return await asyncio.shield(found.task)

    async def preload(self, catalog: ModelCatalog) -> None:
        """Find out about every served model, ahead of its first request, and forget those that are gone."""
        served = catalog.model_ids()
        for model_id in self._found.keys() - set(served):
            if catalog.prepared(model_id) is None:
                del self._found[model_id]
        for model_id in served:
            if (card := catalog.card(model_id)) is None or not card.capabilities.score:
                continue
            try:
                model = await catalog.resolve(model_id)
            except SmgError:
                continue  # whoever asks for the model hears why
            surface = await self.of(model)
            if surface.unsupported:
                _log.info("model %s answers no decisions: %s", model_id, surface.unsupported)
