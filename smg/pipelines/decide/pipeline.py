"""A decision request from questions to answers: the state is tokenized once and scored once, whatever is asked of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from smg.decisions.layout import PROMPT_VERSION
from smg.errors import (
    ContextTooLong,
    DeadlineExceeded,
    DecisionsRefused,
    ModelNotFound,
    SmgError,
    UnsupportedSurface,
)
from smg.pipelines.decide.answers import Thresholds, answers, failed
from smg.pipelines.decide.questions import Failure, write_sheet
from smg.pipelines.off_loop import in_thread, off_loop
from smg.pipelines.sinks import UsageCounter
from smg.prompt.packed import ID_BYTES
from smg.validation.decision import RequestBounds, validate_decide
from smg_proto.decision.v1 import answer_pb2, decision_pb2
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Collection

    from smg.pipelines.catalog import ModelCatalog, ServedModel
    from smg.pipelines.decide.questions import Sheet
    from smg.pipelines.decide.score_call import ScoreCall, StateScores
    from smg.pipelines.decide.surface import DecisionSurfaces, Surface
    from smg.pipelines.meter import RequestMeter
    from smg.settings import DecisionSettings
    from smg.types.context import RequestContext, TraceHeaders
    from smg_proto.decision.v1 import question_pb2

# Laying out and tokenizing so much text takes about a millisecond; a question counts as much as so many characters.
INLINE_CHARS = 12_000
QUESTION_CHARS = 800
# Making so many answers does.
INLINE_ROWS = 50
_FALLBACK = "unknown"


class Tally:
    """What the meter reads of a request: counts, and what it ended with. Nothing is ever streamed."""

    is_open = False
    opened_at = 0.0
    error: SmgError | None = None

    def __init__(self) -> None:
        self.usage = UsageCounter()
        self.worker_urls: list[str] = []
        self.failovers = 0


@dataclass(slots=True)
class _Clock:
    """Seconds spent, all states of a request together."""

    tokenize_s: float = 0.0
    queue_s: float = 0.0
    forward_s: float = 0.0
    post_s: float = 0.0


class _Answered(NamedTuple):
    """One state's answers, and the worker's address."""

    answers: answer_pb2.StateAnswers
    worker_url: str


class _Asking(NamedTuple):
    """What the states of one request have in common."""

    model: ServedModel
    surface: Surface
    budget: int
    route: str
    context: RequestContext
    trace: TraceHeaders
    clock: _Clock


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
        self, request: decision_pb2.DecideRequest, context: RequestContext, meter: RequestMeter
    ) -> decision_pb2.DecideResponse:
        """Answer a request; questions that fail are answered in place. Cancelling aborts it.

        Raises:
            SmgError: the request as a whole is refused or failed.
        """
        await off_loop(lambda: validate_decide(request, self._bounds), size=request.ByteSize())
        model = await self.resolve(request.model)
        surface = await self._usable(model)
        budget = self._budget(model, request.options)
        tally, clock = Tally(), _Clock()
        asking = _Asking(model, surface, budget, meter.route, context, meter.trace_headers, clock)
        with meter.measure(model.id, tally):
            answered = await self._answered(request, asking)
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

    async def _answered(self, request: decision_pb2.DecideRequest, asking: _Asking) -> list[_Answered]:
        """Answers and worker per state, within the request's time."""
        options, settings = request.options, self.settings
        own = options.HasField("deadline_ms")
        if own:
            limit_s = options.deadline_ms / 1000
        else:
            limit_s = (
                settings.decision_max_deadline_secs
                if options.long_context
                else settings.decision_timeout_secs
            )
        is_batch = len(request.states) > 1 or bool(request.states[0].name)
        if not is_batch:
            try:
                async with asyncio.timeout(limit_s):
                    return [await self._state(request.states[0], asking, is_batch=False)]
            except TimeoutError:
                if not own:
                    raise _out_of_time(limit_s) from None
                return [_Answered(_too_late(request.states[0], options.deadline_ms), "")]
        places = asyncio.Semaphore(settings.decision_concurrent_states)
        faults: list[SmgError] = []

        async def one(state: question_pb2.State) -> _Answered:
            async with places:
                try:
                    return await self._state(state, asking, is_batch=True)
                except SmgError as error:
                    faults.append(error)
                    return _Answered(_broken(state, error), "")

        tasks = [asyncio.create_task(one(state)) for state in request.states]
        try:
            _, late = await asyncio.wait(tasks, timeout=limit_s)
        finally:
            await _stopped(tasks)
        if len(faults) == len(tasks):
            raise faults[0]
        if late and not own:
            raise _out_of_time(limit_s)
        return [
            _Answered(_too_late(state, options.deadline_ms), "") if task.cancelled() else task.result()
            for state, task in zip(request.states, tasks, strict=True)
        ]

    async def _state(self, state: question_pb2.State, asking: _Asking, *, is_batch: bool) -> _Answered:
        # The event loop's own clock may be as coarse as a millisecond.
        clock = asking.clock
        begun = time.perf_counter()
        size = len(state.content.text) + len(state.content.json) + QUESTION_CHARS * len(state.questions)
        if size <= INLINE_CHARS:
            sheet, score, used = self._prepared(state, asking)
        else:
            sheet, score, used = await in_thread(self._prepared, state, asking)
        self._check_request_tokens(sheet, score, used, is_batch=is_batch)
        ready = time.perf_counter()
        clock.tokenize_s += ready - begun
        if not score.suffixes:
            found = [failed(asked, asked.failure or _NOT_ASKED) for asked in sheet.asked]
            return _Answered(answer_pb2.StateAnswers(name=state.name, answers=found), "")
        scores = await self._score_call.run(asking.route, score, asking.context)
        done = time.perf_counter()
        forward_s = scores.compute_s or done - ready
        clock.forward_s += forward_s
        clock.queue_s += max(0.0, done - ready - forward_s)
        if len(scores.rows) <= INLINE_ROWS:
            made = answers(sheet, scores.rows, self._thresholds)
        else:
            made = await in_thread(answers, sheet, scores.rows, self._thresholds)
        result = answer_pb2.StateAnswers(name=state.name, answers=made, usage=_usage(score, used, scores))
        clock.post_s += time.perf_counter() - done
        return _Answered(result, scores.worker_url)

    def _prepared(self, state: question_pb2.State, asking: _Asking) -> tuple[Sheet, work_pb2.Score, int]:
        """The questions, what is to be scored, and the tokens of the state and all questions."""
        surface, settings = asking.surface, self.settings
        prompts = surface.prompts
        assert prompts is not None  # noqa: S101 - _usable() has seen to it
        sheet = write_sheet(
            state, surface, max_rows=settings.decision_max_rows, two_orders=settings.decision_two_orders
        )
        score = work_pb2.Score(
            model=asking.model.id,
            request_id=asking.context.request_id,
            traceparent=asking.trace.parent,
            tracestate=asking.trace.state,
        )
        if not sheet.endings:
            return sheet, score, 0
        try:
            shared = prompts.shared(sheet.text, sheet.endings, max_tokens=asking.budget)
        except ContextTooLong:
            _fail_all(sheet, _too_long(asking.budget, None))
            return sheet, score, 0
        score.prefix_ids = shared.prefix
        encode = asking.model.builder.encode_plain
        for asked in sheet.asked:
            rows = range(asked.first, asked.first + asked.rows)
            longest = max((len(shared.suffixes[row]) for row in rows), default=0)
            tokens = (len(shared.prefix) + longest) // ID_BYTES
            asked.first = len(score.suffixes)
            if asked.failure is None and tokens > asking.budget:
                asked.failure, asked.rows = _too_long(asking.budget, tokens), 0
                continue
            for row in rows:
                score.suffixes.add(
                    ids=shared.suffixes[row],
                    label_ids=sheet.labels[row],
                    label_sequences=[encode(text) for text in sheet.worded[row]],
                )
        used = len(shared.prefix) + sum(len(suffix.ids) for suffix in score.suffixes)
        return sheet, score, used // ID_BYTES

    def _check_request_tokens(
        self, sheet: Sheet, score: work_pb2.Score, used: int, *, is_batch: bool
    ) -> None:
        """Refuse a state that comes to too many tokens; in a batch it fails alone, each of its questions."""
        limit = self.settings.decision_max_request_tokens
        if used <= limit:
            return
        said = (
            f"the state with its {len(sheet.asked)} questions has {used} tokens; at most {limit} are allowed"
        )
        if not is_batch:
            raise DecisionsRefused(said, reason="request_tokens", limit=limit)
        del score.suffixes[:]
        _fail_all(sheet, Failure("invalid_input", "input_malformed", said))

    def _response(
        self,
        request: decision_pb2.DecideRequest,
        answered: list[_Answered],
        asking: _Asking,
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


_NOT_ASKED = Failure("invalid_question", "question_malformed", "the question was not asked")


def _fail_all(sheet: Sheet, failure: Failure) -> None:
    for asked in sheet.asked:
        asked.failure = asked.failure or failure


def _too_long(budget: int, tokens: int | None) -> Failure:
    has = f"has {tokens} tokens" if tokens is not None else f"has more than {budget} tokens"
    message = f"the state with this question {has}; at most {budget} are allowed"
    return Failure("max_length_exceeded", "question_tokens", message)


def _out_of_time(limit_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the questions took more than {limit_s:g} s; options.deadline_ms may allow more",
        code="systemone_deadline_exceeded",
    )


def _too_late(state: question_pb2.State, deadline_ms: int) -> answer_pb2.StateAnswers:
    said = f"no answer within options.deadline_ms, {deadline_ms}"
    return _all_failed(state, answer_pb2.QuestionFailure(error="deadline_exceeded", message=said))


def _broken(state: question_pb2.State, error: SmgError) -> answer_pb2.StateAnswers:
    """The answers about one state of a batch whose worker refused or failed it."""
    kind = "invalid_input" if error.status < 500 and not error.is_retryable else "unavailable"
    return _all_failed(state, answer_pb2.QuestionFailure(error=kind, message=error.message))


def _all_failed(state: question_pb2.State, failure: answer_pb2.QuestionFailure) -> answer_pb2.StateAnswers:
    found = [
        answer_pb2.Answer(id=question.id, type=question.type, failure=failure) for question in state.questions
    ]
    return answer_pb2.StateAnswers(name=state.name, answers=found)


def _usage(score: work_pb2.Score, used: int, scores: StateScores) -> answer_pb2.DecisionUsage:
    prefix = len(score.prefix_ids) // ID_BYTES
    return answer_pb2.DecisionUsage(
        input_tokens=used,
        prompt_tokens=used + prefix * (len(score.suffixes) - 1),
        cached_tokens=sum(row.cached_tokens for row in scores.rows),
    )


async def _stopped(tasks: Collection[asyncio.Task[_Answered]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
