"""A decision request from questions to answers: the state is tokenized once and scored once, whatever is asked of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from smg.decisions.layout import PROMPT_VERSION
from smg.errors import DecisionsRefused, ModelNotFound, UnsupportedSurface
from smg.pipelines.decide.answers import Thresholds, answers, failed
from smg.pipelines.decide.asking import Asking, Clock, check_request_tokens, prepared, usage
from smg.pipelines.decide.questions import Failure
from smg.pipelines.decide.states import Answered, answer_states
from smg.pipelines.off_loop import in_thread, off_loop
from smg.pipelines.sinks import UsageCounter
from smg.validation.decision import RequestBounds, validate_decide
from smg_proto.decision.v1 import answer_pb2, decision_pb2

if TYPE_CHECKING:
    from smg.errors import SmgError
    from smg.pipelines.catalog import ModelCatalog, ServedModel
    from smg.pipelines.decide.score_call import ScoreCall
    from smg.pipelines.decide.surface import DecisionSurfaces, Surface
    from smg.pipelines.meter import RequestMeter
    from smg.settings import DecisionSettings
    from smg.types.context import RequestContext
    from smg_proto.decision.v1 import question_pb2

# Laying out and tokenizing so much text takes about a millisecond; a question counts as much as so many characters.
INLINE_CHARS = 12_000
QUESTION_CHARS = 800
# Making so many answers does.
INLINE_ROWS = 50
_FALLBACK = "unknown"
_NOT_ASKED = Failure("invalid_question", "question_malformed", "the question was not asked")


class Tally:
    """What the meter reads of a request: counts, and what it ended with. Nothing is ever streamed."""

    is_open = False
    opened_at = 0.0
    error: SmgError | None = None

    def __init__(self) -> None:
        self.usage = UsageCounter()
        self.worker_urls: list[str] = []
        self.failovers = 0


class DecisionPipeline:
    """Answers decision requests."""

    def __init__(
        self,
        catalog: ModelCatalog,
        surfaces: DecisionSurfaces,
        score_call: ScoreCall,
        settings: DecisionSettings,
    ) -> None:
        self.surfaces = surfaces
        self.settings = settings
        self._catalog = catalog
        self._score_call = score_call
        self._thresholds = Thresholds(settings.decision_set_threshold, settings.decision_span_threshold)
        self._bounds = RequestBounds(
            settings.decision_max_states, settings.decision_max_questions, settings.decision_max_deadline_secs
        )

    async def run(
        self,
        request: decision_pb2.DecideRequest,
        context: RequestContext,
        meter: RequestMeter,
        *,
        are_checked: bool = False,
    ) -> decision_pb2.DecideResponse:
        """Answer a request; questions that fail are answered in place. Cancelling aborts it.

        Args:
            request: what is asked.
            context: who asks.
            meter: of the request.
            are_checked: question_fault() has found nothing in any question.

        Raises:
            SmgError: the request as a whole is refused or failed.
        """
        await off_loop(lambda: validate_decide(request, self._bounds), size=request.ByteSize())
        model = await self.resolve(request.model)
        surface = await self._usable(model)
        budget = self._budget(model, request.options)
        tally = Tally()
        asking = Asking(
            model, surface, budget, meter.route, context, meter.trace_headers, Clock(), are_checked
        )
        with meter.measure(model.id, tally):
            answered = await answer_states(
                request,
                self.settings,
                lambda state, is_batch: self._state(state, asking, is_batch=is_batch),
            )
            response = self._response(request, answered, asking)
            tally.worker_urls = [each.worker_url for each in answered if each.worker_url]
            tally.usage.prompt_tokens = response.usage.prompt_tokens
            tally.usage.cached_tokens = response.usage.cached_tokens
        return response

    async def resolve(self, name: str) -> ServedModel:
        """The model behind a name; without one, or with one that means it, the only model that can be asked.

        Raises:
            DecisionsRefused: no name, and several models.
            ModelNotFound: no worker serves it.
            WorkerUnavailable: nothing is known of any worker yet.
        """
        is_default = not name or name in self.settings.decision_default_names
        if is_default and self._catalog.canonical(name) == name:
            served = self._catalog.model_ids()
            able = [each for each in served if self._catalog.can_score(each)]
            if len(able) == 1:
                return await self._catalog.resolve(able[0])
            if not name and served:
                shown = ", ".join(able[:20]) or "none answers questions"
                raise DecisionsRefused(f"model is missing; served: {shown}", param="model")
        try:
            return await self._catalog.resolve(name)
        except ModelNotFound as error:
            error.param = "model"
            raise

    async def known_models(self) -> list[tuple[ServedModel, Surface]]:
        """Models whose workers score, by id, with what can be asked of them. Those still being prepared are left out."""
        found: list[tuple[ServedModel, Surface]] = []
        for model_id in self._catalog.model_ids():
            model = self._catalog.prepared(model_id)
            if model is not None and self.can_score(model):
                found.append((model, await self.surfaces.of(model)))
        return found

    def can_score(self, model: ServedModel) -> bool:
        """Whether workers of a model score at all."""
        return self._catalog.can_score(model.id)

    def openai_fault(self, surface: Surface) -> str:
        """Why a model is not asked in OpenAI's form, which knows no other readout and no thinking; empty where it is."""
        if surface.unsupported:
            return surface.unsupported
        if surface.is_hybrid and self.settings.decision_thinking == "refuse":
            return "it may think before it answers; the setting decision_thinking=off asks it without"
        return "" if self.settings.decision_readout == "options" else surface.label_fault

    def max_input_tokens(self, model: ServedModel) -> int:
        """Most tokens of a state with one question."""
        longest = self.settings.decision_max_request_tokens
        return min(model.card.context_length or longest, longest)

    async def _usable(self, model: ServedModel) -> Surface:
        if not self._catalog.can_score(model.id):
            raise UnsupportedSurface(f"the model {model.id} answers no questions: its workers do not score")
        surface = await self.surfaces.of(model)
        if surface.unsupported:
            raise UnsupportedSurface(f"the model {model.id} answers no questions: {surface.unsupported}")
        return surface

    def _budget(self, model: ServedModel, options: decision_pb2.DecideOptions) -> int:
        """Most tokens of a state with one question."""
        settings = self.settings
        longest = self.max_input_tokens(model)
        if options.HasField("max_tokens"):
            if options.max_tokens > longest:
                raise DecisionsRefused(
                    f"options.max_tokens is {options.max_tokens}; the model takes at most {longest}",
                    param="options.max_tokens",
                    limit=longest,
                )
            return options.max_tokens
        validated = settings.decision_validated_input_tokens
        return longest if validated is None or options.long_context else min(longest, validated)

    async def _state(self, state: question_pb2.State, asking: Asking, *, is_batch: bool) -> Answered:
        # The event loop's own clock may be as coarse as a millisecond.
        clock, settings = asking.clock, self.settings
        begun = time.perf_counter()
        size = len(state.content.text) + len(state.content.json) + QUESTION_CHARS * len(state.questions)
        if size <= INLINE_CHARS:
            ready = prepared(state, asking, settings)
        else:
            ready = await in_thread(prepared, state, asking, settings)
        check_request_tokens(ready, settings.decision_max_request_tokens, is_batch=is_batch)
        sheet, score, _ = ready
        begun_scoring = time.perf_counter()
        clock.tokenize_s += begun_scoring - begun
        if not score.suffixes:
            found = [failed(asked, asked.failure or _NOT_ASKED) for asked in sheet.asked]
            return Answered(answer_pb2.StateAnswers(name=state.name, answers=found), "")
        scores = await self._score_call.run(asking.route, score, asking.context)
        done = time.perf_counter()
        forward_s = scores.compute_s or done - begun_scoring
        clock.forward_s += forward_s
        clock.queue_s += max(0.0, done - begun_scoring - forward_s)
        if len(scores.rows) <= INLINE_ROWS:
            made = answers(sheet, scores.rows, self._thresholds)
        else:
            made = await in_thread(answers, sheet, scores.rows, self._thresholds)
        result = answer_pb2.StateAnswers(name=state.name, answers=made, usage=usage(ready, scores))
        clock.post_s += time.perf_counter() - done
        return Answered(result, scores.worker_url)

    def _response(
        self,
        request: decision_pb2.DecideRequest,
        answered: list[Answered],
        asking: Asking,
    ) -> decision_pb2.DecideResponse:
        clock = asking.clock
        response = decision_pb2.DecideResponse(
            model=asking.model.id,
            states=[each for each, _ in answered],
            worker_url=next((url for _, url in answered if url), ""),
            timings=answer_pb2.DecisionTimings(
                tokenize_ms=clock.tokenize_s * 1000,
                queue_ms=clock.queue_s * 1000,
                forward_ms=clock.forward_s * 1000,
                post_ms=clock.post_s * 1000,
            ),
        )
        total = response.usage
        for each, _ in answered:
            total.input_tokens += each.usage.input_tokens
            total.prompt_tokens += each.usage.prompt_tokens
            total.cached_tokens += each.usage.cached_tokens
        if request.options.return_meta:
            response.meta.CopyFrom(self.meta(asking.model, asking.surface))
        return response

    def meta(self, model: ServedModel, surface: Surface) -> answer_pb2.DecisionMeta:
        """What answers for a model."""
        card = model.card
        return answer_pb2.DecisionMeta(
            revision=card.revision or _FALLBACK,
            model_digest=card.digest or _FALLBACK,
            dtype=card.dtype or _FALLBACK,
            numerics="exact" if card.is_exact else "approximate",
            engine=self._catalog.engine_of(model.id) or _FALLBACK,
            device=card.device or _FALLBACK,
            prompt_version=PROMPT_VERSION,
            readout=surface.readout,
        )
