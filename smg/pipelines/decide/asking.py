"""What a request asks of a model, and one state of it made ready: its questions laid out, tokenized, within the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from smg.errors import ContextTooLong, DecisionsRefused
from smg.pipelines.decide.questions import Failure, write_sheet
from smg.prompt.packed import ID_BYTES
from smg_proto.decision.v1 import answer_pb2
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from smg.pipelines.catalog import ServedModel
    from smg.pipelines.decide.questions import Asked, Sheet
    from smg.pipelines.decide.score_call import StateScores
    from smg.pipelines.decide.surface import Surface
    from smg.prompt.framed import SharedPrompts
    from smg.settings import DecisionSettings
    from smg.types.context import RequestContext, TraceHeaders
    from smg_proto.decision.v1 import question_pb2


@dataclass(slots=True)
class Clock:
    """Seconds spent, all states of a request together."""

    tokenize_s: float = 0.0
    queue_s: float = 0.0
    forward_s: float = 0.0
    post_s: float = 0.0


class Asking(NamedTuple):
    """What the states of one request have in common.

    Attributes:
        model: that is asked. surface: what can be asked of it.
        budget: most tokens of a state with one question.
        route: for metrics. context: who asks. trace: for the worker.
        clock: adds up.
        are_checked: each question is known to be right.
    """

    model: ServedModel
    surface: Surface
    budget: int
    route: str
    context: RequestContext
    trace: TraceHeaders
    clock: Clock
    are_checked: bool


class Prepared(NamedTuple):
    """A state made ready.

    Attributes:
        sheet: its questions. score: what is to be scored; without suffixes where no question is left.
        used: tokens of the state and all questions.
    """

    sheet: Sheet
    score: work_pb2.Score
    used: int


def prepared(state: question_pb2.State, asking: Asking, settings: DecisionSettings) -> Prepared:
    """Lay out the questions of a state and tokenize them. Those that are too long get their failure."""
    surface = asking.surface
    prompts = surface.prompts
    assert prompts is not None  # noqa: S101 - whoever asks has seen to it
    sheet = write_sheet(
        state,
        surface,
        max_rows=settings.decision_max_rows,
        two_orders=settings.decision_two_orders,
        are_checked=asking.are_checked,
    )
    score = work_pb2.Score(
        model=asking.model.id,
        request_id=asking.context.request_id,
        traceparent=asking.trace.parent,
        tracestate=asking.trace.state,
    )
    if not sheet.endings:
        return Prepared(sheet, score, 0)
    try:
        shared = prompts.shared(sheet.text, sheet.endings, max_tokens=asking.budget)
    except ContextTooLong:
        _fail_all(sheet, _too_long(asking.budget, None))
        return Prepared(sheet, score, 0)
    score.prefix_ids = shared.prefix
    used = len(shared.prefix)
    for asked in sheet.asked:
        used += _add_rows(score, asked, sheet, shared, asking)
    return Prepared(sheet, score, used // ID_BYTES)


def _add_rows(
    score: work_pb2.Score, asked: Asked, sheet: Sheet, shared: SharedPrompts, asking: Asking
) -> int:
    """Add the rows of one question to what is scored, or its failure. Returns the bytes of their ids."""
    rows = range(asked.first, asked.first + asked.rows)
    asked.first = len(score.suffixes)
    suffixes = shared.suffixes[rows.start : rows.stop]
    tokens = (len(shared.prefix) + max(map(len, suffixes), default=0)) // ID_BYTES
    if asked.failure is None and tokens > asking.budget:
        asked.failure, asked.rows = _too_long(asking.budget, tokens), 0
        return 0
    for row, ids in zip(rows, suffixes, strict=True):
        suffix = score.suffixes.add(ids=ids, label_ids=sheet.labels[row])
        if worded := sheet.worded[row]:
            suffix.label_sequences.extend(map(asking.model.builder.encode_plain, worded))
    return sum(map(len, suffixes))


def check_request_tokens(ready: Prepared, limit: int, *, is_batch: bool) -> None:
    """Refuse a state that comes to too many tokens; in a batch it fails alone, each of its questions.

    Raises:
        DecisionsRefused: it does, and it is no batch.
    """
    if ready.used <= limit:
        return
    count = len(ready.sheet.asked)
    said = f"the state with its {count} questions has {ready.used} tokens; at most {limit} are allowed"
    if not is_batch:
        raise DecisionsRefused(said, reason="request_tokens", limit=limit)
    del ready.score.suffixes[:]
    _fail_all(ready.sheet, Failure("invalid_input", "input_malformed", said))


def usage(ready: Prepared, scores: StateScores) -> answer_pb2.DecisionUsage:
    """What a state took: its tokens once, and as prompts that each have the whole of it."""
    prefix = len(ready.score.prefix_ids) // ID_BYTES
    return answer_pb2.DecisionUsage(
        input_tokens=ready.used,
        prompt_tokens=ready.used + prefix * (len(ready.score.suffixes) - 1),
        cached_tokens=sum([row.cached_tokens for row in scores.rows]),
    )


def _fail_all(sheet: Sheet, failure: Failure) -> None:
    for asked in sheet.asked:
        asked.failure = asked.failure or failure


def _too_long(budget: int, tokens: int | None) -> Failure:
    has = f"has {tokens} tokens" if tokens is not None else f"has more than {budget} tokens"
    message = f"the state with this question {has}; at most {budget} are allowed"
    return Failure("max_length_exceeded", "question_tokens", message)
