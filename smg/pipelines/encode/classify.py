"""A request to classify from texts to labels or spans. An input that fails takes no other with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from smg.decisions.classes import joined, sigmoid, softmax, spans_of
from smg.pipelines.encode.embed import timings
from smg.pipelines.encode.encoding import CLASSIFY, INLINE_CHARS, Tally
from smg.pipelines.encode.pieces import Failure, Pieces, bounds_of, pieces_of
from smg.pipelines.off_loop import in_thread
from smg.validation.encode import validate_classify
from smg_proto.embedding.v1 import classify_pb2, common_pb2
from smg_proto.engine.v1 import card_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.encode.encoding import Encoding
    from smg.pipelines.encode.job_call import Encoded
    from smg.pipelines.encode.pieces import Bounds, Window
    from smg.pipelines.meter import RequestMeter
    from smg.prompt.builder import PromptBuilder
    from smg.types.context import RequestContext

# Making spans of so many tokens takes about a millisecond.
INLINE_TOKENS = 500


class ClassifyPipeline:
    """Answers requests to classify."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    async def run(
        self, request: classify_pb2.ClassifyRequest, context: RequestContext, meter: RequestMeter
    ) -> classify_pb2.ClassifyResponse:
        """Classify. Cancelling aborts it.

        Raises:
            SmgError: the request as a whole is refused or failed.
        """
        begun = time.perf_counter()
        encoding = self._encoding
        settings = encoding.settings
        validate_classify(request, settings.encode_max_inputs)
        model = await encoding.resolve(request.model, CLASSIFY)
        card = model.card
        budget = encoding.budget(model, request.options)
        bounds = bounds_of(request.options, budget, settings.encode_max_scan_tokens)
        is_tagger = card.classify_kind == card_pb2.CLASSIFY_KIND_TOKENS
        tally = Tally()
        with meter.measure(model.id, tally):
            async with encoding.within(request.options):
                size = sum(each.ByteSize() for each in request.inputs)
                args = (model.builder, request.inputs, bounds)
                if size <= INLINE_CHARS:
                    read = read_all(*args, wants_spans=is_tagger)
                else:
                    read = await in_thread(read_all, *args, wants_spans=is_tagger)
                ready = time.perf_counter()
                windows = [window for each in read if isinstance(each, Pieces) for window in each.windows]
                work = [_work(model.id, window, context) for window in windows]
                found = await encoding.compute(meter.route, work, context, tally)
                done = time.perf_counter()
            tokens = sum(each.tokens for each in read if isinstance(each, Pieces))
            if is_tagger and tokens > INLINE_TOKENS:
                results = await in_thread(results_of, read, found, card)
            else:
                results = results_of(read, found, card)
            tally.usage.prompt_tokens = tokens
            response = classify_pb2.ClassifyResponse(
                model=model.id,
                results=results,
                usage=common_pb2.EncodeUsage(
                    prompt_tokens=tokens,
                    tokens_lower_bound=any(isinstance(each, Pieces) and not each.is_whole for each in read),
                ),
                worker_url=found[0].worker_url if found else "",
            )
            if request.options.return_meta:
                response.meta.CopyFrom(encoding.meta(model))
            response.timings.CopyFrom(timings(begun, ready, done))
        return response


def read_all(
    builder: PromptBuilder,
    items: Sequence[classify_pb2.ClassifyInput],
    bounds: Bounds,
    *,
    wants_spans: bool,
) -> list[Pieces | Failure]:
    """Read every input."""
    return [pieces_of(builder, item, bounds, wants_spans=wants_spans) for item in items]


def results_of(
    read: Sequence[Pieces | Failure], found: Sequence[Encoded], card: card_pb2.ModelCard
) -> list[classify_pb2.Classification]:
    """A result for every input, out of the logits of all windows in their order."""
    results: list[classify_pb2.Classification] = []
    at = 0
    for each in read:
        if isinstance(each, Failure):
            results.append(classify_pb2.Classification(error=each.error, message=each.message))
            continue
        rows = [item.values for item in found[at : at + len(each.windows)]]
        at += len(each.windows)
        results.append(_result(each, rows, card))
    return results


def _result(
    pieces: Pieces, rows: Sequence[Sequence[float]], card: card_pb2.ModelCard
) -> classify_pb2.Classification:
    labels = list(card.labels)
    result = classify_pb2.Classification(tokens=pieces.tokens)
    if card.classify_kind == card_pb2.CLASSIFY_KIND_TOKENS:
        return _with_spans(result, pieces, rows, labels)
    if any(len(row) != len(labels) for row in rows):
        return _unusable(result, f"the model gave other than {len(labels)} scores")
    # One label by itself has nothing to be compared with.
    result.are_independent = card.classify_kind == card_pb2.CLASSIFY_KIND_INDEPENDENT or len(labels) == 1
    chances = [[sigmoid(each) for each in row] if result.are_independent else softmax(row) for row in rows]
    weights = [window.tokens for window in pieces.windows]
    for label, chance in zip(
        labels, joined(chances, weights, are_independent=result.are_independent), strict=True
    ):
        result.labels.add(label=label, probability=chance)
    return result


def _with_spans(
    result: classify_pb2.Classification,
    pieces: Pieces,
    rows: Sequence[Sequence[float]],
    labels: list[str],
) -> classify_pb2.Classification:
    result.has_spans = True
    size = len(labels)
    if any(len(row) != size * len(window.ids) // 4 for row, window in zip(rows, pieces.windows, strict=True)):
        return _unusable(result, "the model gave another number of scores than there are tokens")
    chances: list[Sequence[float]] = []
    for number, window in enumerate(pieces.windows):
        # Where two windows share tokens, the first half is read off the one before, the rest off the one after.
        following = pieces.windows[number + 1] if number + 1 < len(pieces.windows) else None
        last = window.first + window.tokens
        if following is not None:
            last = (last + following.first + 1) // 2
        for token in range(len(chances), last):
            place = (window.offset + token - window.first) * size
            chances.append(softmax(rows[number][place : place + size]))
    for span in spans_of(pieces.text, pieces.spans[: len(chances)], chances, labels):
        result.spans.add(
            label=span.label,
            start=span.start,
            end=span.end,
            text=pieces.text[span.start : span.end],
            probability=span.probability,
        )
    return result


def _unusable(result: classify_pb2.Classification, message: str) -> classify_pb2.Classification:
    result.error, result.message = "invalid_model_output", message
    return result


def _work(model_id: str, window: Window, context: RequestContext) -> work_pb2.Classify:
    return work_pb2.Classify(
        input_ids=window.ids, second_at=window.second_at, model=model_id, request_id=context.request_id
    )
