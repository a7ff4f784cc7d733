"""Turns the scores of one state's rows into answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.decisions.formulas import (
    NotScores,
    choice_confidence,
    label_mass,
    likeliest,
    probabilities,
    score_confidence,
    score_of,
)
from smg.decisions.kinds import Kind
from smg.decisions.spans import joined
from smg.pipelines.decide.questions import Failure
from smg_proto.decision.v1 import answer_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.decide.questions import Asked, Sheet
    from smg_proto.engine.v1 import work_pb2

# Their labels are the answers; in two orders of a choice these are the same labels.
_OF_ONE_ROW = (Kind.NOUL, Kind.CHOICE, Kind.SCORE)


class Thresholds:
    """From which probability a label of a set, and a word of a span, counts, where the question does not say."""

    def __init__(self, of_set: float, of_span: float) -> None:
        self.of_set = of_set
        self.of_span = of_span


def answers(
    sheet: Sheet, rows: Sequence[work_pb2.SuffixScores], thresholds: Thresholds
) -> list[answer_pb2.Answer]:
    """One answer per question, in order. A question whose scores are none fails alone.

    Args:
        sheet: the questions.
        rows: scores, one entry per row of the sheet.
        thresholds: where questions do not say.
    """
    return [_answer(sheet, asked, rows, thresholds) for asked in sheet.asked]


def failed(asked: Asked, failure: Failure) -> answer_pb2.Answer:
    """The answer to a question that has none."""
    return answer_pb2.Answer(
        id=asked.question.id,
        type=asked.question.type,
        failure=answer_pb2.QuestionFailure(
            error=failure.error, reason=failure.reason, message=failure.message
        ),
    )


def _answer(
    sheet: Sheet, asked: Asked, rows: Sequence[work_pb2.SuffixScores], thresholds: Thresholds
) -> answer_pb2.Answer:
    if asked.failure is not None or asked.kind is None:
        return failed(asked, asked.failure or Failure("invalid_question", "", ""))
    mine = rows[asked.first : asked.first + asked.rows]
    try:
        shares = [probabilities(list(row.logprobs or row.sequence_logprobs)) for row in mine]
    except NotScores as fault:
        return failed(asked, Failure("invalid_model_output", "", f"the model's scores are unusable: {fault}"))
    answer = answer_pb2.Answer(id=asked.question.id, type=asked.question.type)
    if asked.kind in _OF_ONE_ROW and (logprobs := mine[0].logprobs):
        answer.label_mass = label_mass(logprobs)
    _fill(answer, asked, shares, sheet.text, thresholds)
    return answer


def _fill(
    answer: answer_pb2.Answer, asked: Asked, shares: list[list[float]], text: str, thresholds: Thresholds
) -> None:
    question = asked.question
    match asked.kind:
        case Kind.NOUL:
            answer.noul.noul = shares[0][0]
        case Kind.CHOICE:
            chosen = _both_orders(shares)
            index = likeliest(chosen)
            choice = answer.choice
            choice.index, choice.key = index, question.options[index].key
            choice.confidence = choice_confidence(chosen)
            choice.probabilities.extend(chosen)
        case Kind.SCORE:
            score = answer.score
            score.score, score.confidence = score_of(shares[0]), score_confidence(shares[0])
            score.probabilities.extend(shares[0])
        case Kind.SET:
            answer.set.threshold = question.threshold if question.HasField("threshold") else thresholds.of_set
            answer.set.probabilities.extend(share[0] for share in shares)
        case _:
            threshold = question.threshold if question.HasField("threshold") else thresholds.of_span
            _fill_span(answer.span, asked, [share[0] for share in shares], text, threshold)


def _fill_span(
    span: answer_pb2.SpanAnswer, asked: Asked, shares: list[float], text: str, threshold: float
) -> None:
    span.threshold = threshold
    span.noul = max(shares, default=0.0)
    count = len(asked.places)
    found: list[answer_pb2.FoundSpan] = []
    for number, option in enumerate(asked.question.options):
        mine = shares[number * count : (number + 1) * count]
        found += [
            answer_pb2.FoundSpan(
                label=option.key,
                start=each.start,
                end=each.end,
                text=text[each.start : each.end],
                probability=each.probability,
            )
            for each in joined(text, asked.places, mine, threshold)
        ]
    span.spans.extend(sorted(found, key=lambda each: (each.start, each.end)))


def _both_orders(shares: list[list[float]]) -> list[float]:
    """The mean of the options' probabilities in both orders; in one order they are what they are."""
    if len(shares) == 1:
        return shares[0]
    return [(one + other) / 2 for one, other in zip(shares[0], reversed(shares[1]), strict=True)]
