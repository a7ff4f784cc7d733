"""What requests to encoders have in common: the model, its budget, many inputs within one request's time, the usage."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smg.errors import DeadlineExceeded, ModelNotFound, SmgError, UnsupportedSurface
from smg.pipelines.sinks import UsageCounter
from smg.validation.encode import refused
from smg_proto.embedding.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.pipelines.catalog import ModelCatalog, ServedModel
    from smg.pipelines.encode.job_call import Encoded, JobCall, Work
    from smg.settings import EncodingSettings
    from smg.types.context import RequestContext
    from smg_proto.engine.v1 import card_pb2

# Tokenizing so much text takes about a millisecond.
INLINE_CHARS = 8_000
UNKNOWN = "unknown"


class Tally:
    """What the meter reads of a request: counts, and what it ended with. Nothing is ever streamed."""

    is_open = False
    opened_at = 0.0
    error: SmgError | None = None

    def __init__(self) -> None:
        self.usage = UsageCounter()
        self.worker_urls: list[str] = []
        self.failovers = 0


@dataclass(frozen=True, slots=True)
class Surface:
    """Something that models do.

    Attributes:
        name: what the model is said not to do.
        is_served: by a model's card.
    """

    name: str
    is_served: Callable[[card_pb2.ModelCard], bool]


def _embeds(card: card_pb2.ModelCard) -> bool:
    return card.capabilities.embed


def _classifies(card: card_pb2.ModelCard) -> bool:
    return card.capabilities.classify


EMBED = Surface("embed", _embeds)
CLASSIFY = Surface("classify", _classifies)


class Encoding:
    """The common part of the pipelines."""

    def __init__(self, catalog: ModelCatalog, job_call: JobCall, settings: EncodingSettings) -> None:
        self.catalog = catalog
        self.settings = settings
        self._job_call = job_call

    async def resolve(self, name: str, *surfaces: Surface) -> ServedModel:
        """The model behind a name; without one the only model that does this.

        Raises:
            ModelNotFound: no worker serves it.
            UnsupportedSurface: it does none of these things.
            InvalidRequest: no name, and not one model that does.
            WorkerUnavailable: nothing is known of any worker yet.
        """
        model = await self.find(name or self._only(surfaces))
        if not any(surface.is_served(model.card) for surface in surfaces):
            does = " or ".join(surface.name for surface in surfaces)
            raise UnsupportedSurface(f"the model {model.id} does not {does}", param="model")
        return model

    async def find(self, name: str) -> ServedModel:
        """The model behind a name, whatever it does. Raises as resolve()."""
        try:
            return await self.catalog.resolve(name)
        except ModelNotFound as error:
            error.param = "model"
            raise

    def _only(self, surfaces: Sequence[Surface]) -> str:
        able = [
            (model_id, card)
            for model_id in self.catalog.model_ids()
            if (card := self.catalog.card(model_id)) is not None
            and any(surface.is_served(card) for surface in surfaces)
        ]
        # Beside a chat model that can do it too, one that does nothing else is meant.
        own = [each for each in able if not each[1].capabilities.generate] or able
        if len(own) == 1:
            return own[0][0]
        shown = ", ".join(model_id for model_id, _ in able[:20]) or "none"
        raise refused(f"model is missing; served: {shown}", "model")

    def budget(self, model: ServedModel, options: common_pb2.EncodeOptions) -> int:
        """Most tokens of one input, what stands around it included.

        Raises:
            InvalidRequest: more are asked for than the model takes.
        """
        longest = model.card.context_length or self.settings.encode_max_scan_tokens
        if not options.HasField("max_tokens") or options.overflow == common_pb2.OVERFLOW_WINDOW:
            return longest
        if options.max_tokens > longest:
            raise refused(
                f"options.max_tokens is {options.max_tokens}; the model takes at most {longest}",
                "options.max_tokens",
            )
        return options.max_tokens

    async def compute(
        self, route: str, work: Sequence[Work], context: RequestContext, tally: Tally
    ) -> list[Encoded]:
        """Have inputs computed, so many at a time. The first failure ends the others.

        Raises:
            SmgError: the first failure.
        """
        found: dict[int, Encoded] = {}
        waiting = iter(enumerate(work))

        async def place() -> None:
            for index, item in waiting:
                found[index] = await self._job_call.run(route, item, context)

        places = min(len(work), self.settings.encode_concurrent_inputs)
        if places == 1:
            await place()
        else:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(places):
                        group.create_task(place())
            except* SmgError as failures:
                raise _first(failures) from failures
        answers = [found[index] for index in range(len(work))]
        tally.worker_urls = list(dict.fromkeys(each.worker_url for each in answers))
        return answers

    def within(self, options: common_pb2.EncodeOptions) -> Deadline:
        """The request's time, as a context."""
        own_s = options.deadline_ms / 1000 if options.HasField("deadline_ms") else None
        return Deadline(own_s or self.settings.encode_timeout_secs)

    def meta(self, model: ServedModel, representation: str = "") -> common_pb2.EncodeMeta:
        """What answers for a model."""
        card = model.card
        return common_pb2.EncodeMeta(
            revision=card.revision or UNKNOWN,
            model_digest=card.digest or UNKNOWN,
            dtype=card.dtype or UNKNOWN,
            numerics="exact" if card.is_exact else "approximate",
            engine=self.catalog.engine_of(model.id) or UNKNOWN,
            device=card.device or UNKNOWN,
            representation=representation,
        )


class Deadline:
    """Ends its body with DeadlineExceeded after some seconds."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timeout = asyncio.timeout(limit_s)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)  # pyright: ignore[reportArgumentType]
        except TimeoutError:
            raise DeadlineExceeded(
                f"the request took more than {self._limit_s:g} s; options.deadline_ms may allow another time"
            ) from None


def _first(group: BaseExceptionGroup[SmgError]) -> SmgError:
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError
