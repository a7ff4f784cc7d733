"""A request to rank documents for a query, by what its model does: a cross-encoder's logit, cosines of vectors, or a yes.

A document's score depends on the query and itself alone, never on the other documents.
"""

from __future__ import annotations

import math
import time
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from smg.decisions.classes import sigmoid
from smg.decisions.json_text import json_bytes
from smg.errors import ContextTooLong, DeadlineExceeded, EngineError, InvalidRequest, SmgError, UnusableScores
from smg.pipelines.encode.embed import read_inputs, timings, usage_of
from smg.pipelines.encode.encoding import INLINE_CHARS, Surface, Tally
from smg.pipelines.encode.pieces import Bounds, Failure, pieces_of
from smg.pipelines.off_loop import in_thread
from smg.validation.encode import refused, validate_rerank
from smg_proto.decision.v1 import decision_pb2, question_pb2
from smg_proto.embedding.v1 import classify_pb2, common_pb2, embedding_pb2, rerank_pb2
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.catalog import ServedModel
    from smg.pipelines.decide.pipeline import DecisionPipeline
    from smg.pipelines.encode.encoding import Encoding
    from smg.pipelines.encode.job_call import Work
    from smg.pipelines.meter import RequestMeter
    from smg.types.context import RequestContext
    from smg_proto.engine.v1 import card_pb2

# Cosines of so many numbers take about a millisecond.
INLINE_NUMBERS = 10_000
QUESTION = "Does the candidate passage contain information that helps answer the request?"
_QUESTION_ID = "relevance"


class _Scores(NamedTuple):
    """Scores by document.

    Attributes:
        raw: as the model gives them.
        scaled: from 0 to 1.
    """

    raw: list[float]
    scaled: list[float]
    usage: common_pb2.EncodeUsage
    worker_url: str
    ready: float
    done: float


def is_cross_encoder(card: card_pb2.ModelCard) -> bool:
    """Whether a classifier's one logit says how well two texts go together."""
    return card.capabilities.classify and len(card.labels) == 1


def _ranks(card: card_pb2.ModelCard) -> bool:
    return card.capabilities.embed or is_cross_encoder(card) or card.capabilities.score


RANK = Surface("rank documents", _ranks)


class RerankPipeline:
    """Answers requests to rank."""

    def __init__(self, encoding: Encoding, decide: DecisionPipeline) -> None:
        self._encoding = encoding
        self._decide = decide

    async def run(
        self, request: rerank_pb2.RerankRequest, context: RequestContext, meter: RequestMeter
    ) -> rerank_pb2.RerankResponse:
        """Rank. Cancelling aborts it.

        Raises:
            SmgError: the request is refused, or a document of it failed.
        """
        begun = time.perf_counter()
        encoding = self._encoding
        validate_rerank(request, encoding.settings.encode_max_inputs)
        model = await encoding.resolve(request.model, RANK)
        way = self._asked if await self._answers_questions(model) else self._encoded
        scores = await way(request, model, context, meter)
        given = scores.raw if request.raw_scores else scores.scaled
        order = sorted(range(len(given)), key=lambda index: (-given[index], index))
        most = request.top_n if request.HasField("top_n") else len(order)
        response = rerank_pb2.RerankResponse(
            model=model.id,
            results=[rerank_pb2.RankedDocument(index=index, score=given[index]) for index in order[:most]],
            usage=scores.usage,
            worker_url=scores.worker_url,
        )
        if request.options.return_meta:
            response.meta.CopyFrom(encoding.meta(model))
        response.timings.CopyFrom(timings(begun, scores.ready, scores.done))
        return response

    async def _answers_questions(self, model: ServedModel) -> bool:
        """Whether documents are asked about one by one: of chat models, whose vectors say little."""
        card = model.card
        if not card.capabilities.generate or is_cross_encoder(card) or not self._decide.can_score(model):
            return False
        return not (await self._decide.surfaces.of(model)).unsupported

    async def _encoded(
        self,
        request: rerank_pb2.RerankRequest,
        model: ServedModel,
        context: RequestContext,
        meter: RequestMeter,
    ) -> _Scores:
        encoding, options = self._encoding, request.options
        budget = encoding.budget(model, options)
        may_cut = options.overflow == common_pb2.OVERFLOW_TRUNCATE
        tally = Tally()
        prepare = _pairs if is_cross_encoder(model.card) else _texts
        is_long = len(request.query) + sum(map(len, request.documents)) > INLINE_CHARS
        with meter.measure(model.id, tally):
            async with encoding.within(options):
                args = (model, request, budget, context)
                if is_long:
                    made = await in_thread(prepare, *args, may_cut=may_cut)
                else:
                    made = prepare(*args, may_cut=may_cut)
                ready = time.perf_counter()
                found = await encoding.compute(meter.route, made.work, context, tally)
                rows = [each.values for each in found]
                if prepare is _pairs:
                    raw = [row[0] for row in rows]
                    scaled = list(map(sigmoid, raw))
                elif sum(map(len, rows)) > INLINE_NUMBERS:
                    raw = await in_thread(cosines, rows[0], rows[1:])
                    scaled = list(map(_share, raw))
                else:
                    raw = cosines(rows[0], rows[1:])
                    scaled = list(map(_share, raw))
                done = time.perf_counter()
            tally.usage.prompt_tokens = made.usage.prompt_tokens
        return _Scores(raw, scaled, made.usage, found[0].worker_url, ready, done)

    async def _asked(
        self,
        request: rerank_pb2.RerankRequest,
        model: ServedModel,
        context: RequestContext,
        meter: RequestMeter,
    ) -> _Scores:
        if request.options.overflow == common_pb2.OVERFLOW_TRUNCATE:
            raise refused(
                f"options.overflow is truncate; {model.id} is asked about whole documents only: reject",
                "options.overflow",
            )
        most = self._decide.settings.decision_max_states
        if len(request.documents) > most:
            raise refused(
                f"documents has {len(request.documents)} entries; {model.id} is asked about at most {most}",
                "documents",
            )
        asked = decision_pb2.DecideRequest(model=model.id, rid=context.request_id)
        if request.options.HasField("deadline_ms"):
            asked.options.deadline_ms = request.options.deadline_ms
        if request.options.HasField("max_tokens"):
            asked.options.max_tokens = request.options.max_tokens
        for index, document in enumerate(request.documents):
            state = {"request": request.query, "candidate": document}
            asked.states.add(
                name=str(index),
                content=question_pb2.Content(json=json_bytes(state).decode()),
                questions=[
                    question_pb2.Question(
                        id=_QUESTION_ID,
                        type=question_pb2.QUESTION_TYPE_NOUL,
                        instructions=question_pb2.Content(text=QUESTION),
                    )
                ],
            )
        ready = time.perf_counter()
        response = await self._decide.run(asked, context, meter)
        scaled: list[float] = []
        for index, state in enumerate(response.states):
            answer = state.answers[0]
            if answer.HasField("failure"):
                raise _failed(index, answer.failure.error, answer.failure.message)
            scaled.append(answer.noul.noul)
        usage = common_pb2.EncodeUsage(prompt_tokens=response.usage.input_tokens)
        return _Scores(scaled, scaled, usage, response.worker_url, ready, time.perf_counter())


def cosines(query: Sequence[float], documents: Sequence[Sequence[float]]) -> list[float]:
    """The cosine of a vector with each of others; 0 for a vector without length."""
    length = math.hypot(*query)
    found: list[float] = []
    for each in documents:
        both = length * math.hypot(*each)
        found.append(max(-1.0, min(1.0, sum(map(mul, query, each)) / both)) if both else 0.0)
    return found


def _share(cosine: float) -> float:
    """A cosine as a number from 0 to 1: monotone, and the same whatever the other documents are."""
    return (1 + cosine) / 2


class _Made(NamedTuple):
    """What is to be computed for a request: one piece of work a document; for vectors the query's before them."""

    work: Sequence[Work]
    usage: common_pb2.EncodeUsage


def _texts(
    model: ServedModel,
    request: rerank_pb2.RerankRequest,
    budget: int,
    context: RequestContext,
    *,
    may_cut: bool,
) -> _Made:
    names = ["query", *(f"documents[{index}]" for index in range(len(request.documents)))]
    items = [embedding_pb2.EmbeddingInput(text=text) for text in (request.query, *request.documents)]
    inputs = read_inputs(model.builder, items, budget, may_cut=may_cut, names=names)
    work = [
        work_pb2.Embed(input_ids=each.ids, model=model.id, request_id=context.request_id) for each in inputs
    ]
    return _Made(work, usage_of(inputs))


def _pairs(
    model: ServedModel,
    request: rerank_pb2.RerankRequest,
    budget: int,
    context: RequestContext,
    *,
    may_cut: bool,
) -> _Made:
    """The query with each document. What is too long loses its end: of the document, as far as it is the longer one."""
    bounds = Bounds(budget, None, 0, may_cut)
    work: list[work_pb2.Classify] = []
    tokens, is_whole = 0, True
    for index, document in enumerate(request.documents):
        item = classify_pb2.ClassifyInput(text=request.query, text_pair=document)
        pieces = pieces_of(model.builder, item, bounds, wants_spans=False)
        if isinstance(pieces, Failure):
            raise _failed(index, pieces.error, pieces.message)
        window = pieces.windows[0]
        work.append(
            work_pb2.Classify(
                input_ids=window.ids,
                second_at=window.second_at,
                model=model.id,
                request_id=context.request_id,
            )
        )
        tokens += pieces.tokens
        is_whole = is_whole and pieces.is_whole
    return _Made(work, common_pb2.EncodeUsage(prompt_tokens=tokens, tokens_lower_bound=not is_whole))


def _failed(index: int, error: str, message: str) -> SmgError:
    said = f"documents[{index}]: {message}"
    if error == "max_length_exceeded":
        return ContextTooLong(said, param=f"documents[{index}]")
    if error == "deadline_exceeded":
        return DeadlineExceeded(said)
    if error == "invalid_input":
        return InvalidRequest(said, code="invalid_request", param=f"documents[{index}]")
    return UnusableScores(said) if error == "invalid_model_output" else EngineError(said, engine_code=14)
