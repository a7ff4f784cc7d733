"""Which models can be asked for, and what it takes to make their prompts.

A model's tokenizer and template are loaded when it is first seen, in a thread, once per fingerprint: workers that
serve the same files share them. A model whose tokenizer cannot be had is tried again with the next request.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from smg.errors import InternalError, ModelNotFound, SmgError, WorkerUnavailable
from smg.workers.registered import count_unused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from smg.pipelines.formats import FormatSettings, OutputFormats
    from smg.prompt.builder import PromptBuilder
    from smg.workers.registry import WorkerRegistry
    from smg_proto.engine.v1 import card_pb2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that workers serve.

    Attributes:
        id: its id, not an alias.
        card: what the workers say of it.
        builder: makes its prompts and its text.
        formats: in which it writes calls and reasoning.
        modalities: tells which media some worker of it takes now.
    """

    id: str
    card: card_pb2.ModelCard
    builder: PromptBuilder
    formats: OutputFormats
    modalities: Callable[[], Sequence[str]] = tuple[str, ...]


class TokenizerSource(Protocol):
    """Gets tokenizer files."""

    async def directory(self, model_id: str) -> Path:
        """A directory with the tokenizer files of a model. Raises SmgError."""
        ...


class ModelCatalog:
    """Finds models by name.

    Attributes:
        is_prepared: what the first models need was loaded, or was tried.
    """

    def __init__(
        self,
        registry: WorkerRegistry,
        tokenizers: TokenizerSource,
        aliases: Mapping[str, str],
        load: Callable[[Path], PromptBuilder],
        formats: FormatSettings,
    ) -> None:
        """Args: load makes a prompt builder from a directory; it runs in a thread."""
        self._registry = registry
        self._tokenizers = tokenizers
        self._aliases = aliases
        self._load = load
        self._formats = formats
        self._served: dict[str, ServedModel] = {}
        self._loading: dict[str, asyncio.Task[PromptBuilder]] = {}
        self.is_prepared = False

    def canonical(self, name: str) -> str:
        """The id behind a name that may be an alias."""
        return self._aliases.get(name, name)

    def model_ids(self) -> tuple[str, ...]:
        """Ids of the models that some worker is ready for, sorted."""
        models = self._registry.models()
        return tuple(sorted(each for each in models if any(worker.is_ready for worker in models[each])))

    def can_score(self, model_id: str) -> bool:
        """Whether a worker of a model scores labels. Every one on SGLang's protocol can be asked to."""
        card = self._registry.card(model_id)
        if card is None or card.capabilities.score:
            return card is not None
        entries = self._registry.models().get(model_id, ())
        return any(entry.worker is not None and entry.worker.protocol == "sglang_grpc" for entry in entries)

    def card(self, model_id: str) -> card_pb2.ModelCard | None:
        """What the workers say of a model; None when nobody serves it."""
        return self._registry.card(model_id)

    def prepared(self, model_id: str) -> ServedModel | None:
        """A model that was resolved before; None for any other."""
        return self._served.get(model_id)

    def engine_of(self, model_id: str) -> str:
        """Name of the engine of a model's first worker; empty when none has told."""
        for entry in self._registry.models().get(model_id, ()):
            if entry.description is not None:
                return entry.description.engine
        return ""

    async def resolve(self, name: str) -> ServedModel:
        """The model behind a name.

        Raises:
            ModelNotFound: no worker serves it.
            WorkerUnavailable: nothing is known of any worker yet.
            InternalError: its tokenizer cannot be had or read.
        """
        model_id = self._aliases.get(name, name)
        card = self._registry.card(model_id)
        if card is None:
            raise self._unknown(name)
        served = self._served.get(model_id)
        if served is None or served.card is not card:
            builder = await self._builder(model_id, card)
            served = self._served[model_id] = ServedModel(
                model_id,
                card,
                builder,
                self._formats.formats_of(model_id, builder),
                partial(self._modalities, model_id),
            )
        return served

    def enforced(self, model_id: str) -> list[Sequence[str]]:
        """For each worker that serves a model, the kinds of constraints that it enforces."""
        return list(self._registry.constraints(model_id).values())

    def _modalities(self, model_id: str) -> tuple[str, ...]:
        taken = self._registry.modalities(model_id).values()
        return tuple(sorted({each for modalities in taken for each in modalities}))

    def formats_of(self, model_id: str) -> OutputFormats | None:
        """The formats of a model; None as long as nobody has asked for it."""
        served = self._served.get(model_id)
        return served.formats if served is not None else None

    async def preload(self) -> None:
        """Load what the served models need, ahead of their first request. Failures are logged, not raised."""
        models = tuple(self._registry.models())
        for model_id in models:
            if not self._is_prompted(model_id):
                continue
            try:
                await self.resolve(model_id)
            except SmgError as error:
                logger.warning("model %s cannot be prompted yet: %s", model_id, error.message)
        self.is_prepared = self.is_prepared or bool(models)
        self._forget_unserved()

    def _is_prompted(self, model_id: str) -> bool:
        """Encoders beside chat models are rarely asked: their tokenizers are loaded with the first request."""
        card = self._registry.card(model_id)
        return card is None or card.capabilities.generate or card.capabilities.score

    def _unknown(self, name: str) -> ModelNotFound | WorkerUnavailable:
        models = self._registry.models()
        if not models and self._registry.workers():
            self._registry.hurry()
            states = count_unused(self._registry.workers())
            return WorkerUnavailable(f"no worker has told its models yet ({states})")
        known = ", ".join(sorted(models)[:20]) or "none"
        return ModelNotFound(f"no worker serves the model {name[:200]!r}; served: {known}")

    def _forget_unserved(self) -> None:
        for model_id in [each for each in self._served if self._registry.card(each) is None]:
            del self._served[model_id]

    async def _builder(self, model_id: str, card: card_pb2.ModelCard) -> PromptBuilder:
        fingerprint = card.tokenizer_sha256 or model_id
        for served in self._served.values():
            if card.tokenizer_sha256 and served.card.tokenizer_sha256 == card.tokenizer_sha256:
                return served.builder
        task = self._loading.get(fingerprint)
        if task is None:
            # One load for all who ask meanwhile; shielded, because one of them leaving must not stop it.
            task = asyncio.create_task(self._load_builder(model_id))
            self._loading[fingerprint] = task
            task.add_done_callback(lambda _: self._loading.pop(fingerprint, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if task.cancelled() and asking is not None and not asking.cancelling():
                # The load was cut, not the caller: the connection that it came over was closed.
                raise WorkerUnavailable(f"the tokenizer of {model_id} is not here yet") from None
            raise

    async def _load_builder(self, model_id: str) -> PromptBuilder:
        directory = await self._tokenizers.directory(model_id)
        try:
            return await asyncio.to_thread(self._load, directory)
        except SmgError:
            raise
        except Exception as error:
            logger.exception("tokenizer of %s cannot be read", model_id)
            raise InternalError(
                f"the tokenizer of {model_id} cannot be read: {error}", code="tokenizer_unavailable"
            ) from error
