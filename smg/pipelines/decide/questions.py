"""Turns the questions about one state into the texts that are scored: one each, or one per label, or per word."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic_core import from_json

from smg.decisions.json_text import json_bytes
from smg.decisions.kinds import Kind
from smg.decisions.layout import ShownOption, choice_text, noul_text, score_text, set_text, span_text
from smg.decisions.spans import Place, words
from smg.validation.decision import question_fault
from smg_proto.decision.v1 import question_pb2 as q

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smg.decisions.labels import LabelSet
    from smg.pipelines.decide.surface import Surface
    from smg.validation.decision import QuestionFault

KINDS: Mapping[int, Kind] = {
    q.QUESTION_TYPE_NOUL: Kind.NOUL,
    q.QUESTION_TYPE_CHOICE: Kind.CHOICE,
    q.QUESTION_TYPE_SCORE: Kind.SCORE,
    q.QUESTION_TYPE_SET: Kind.SET,
    q.QUESTION_TYPE_SPAN: Kind.SPAN,
}
_YES_NO = ("yes", "no")
_TOO_MANY = "max_length_exceeded"


class Failure(NamedTuple):
    """Why a question has no answer.

    Attributes:
        error: as in QuestionFailure. reason: a fixed word. message: for people.
    """

    error: str
    reason: str
    message: str


@dataclass(slots=True)
class Asked:
    """One question on its way.

    Attributes:
        question: as it came.
        kind: of the question; None for one that is not asked.
        first: index of its first row. rows: how many it has.
        places: words that a span question asks about; each once per label, label by label.
        failure: why it has no answer; None while it may get one.
    """

    question: q.Question
    kind: Kind | None = None
    first: int = 0
    rows: int = 0
    places: Sequence[Place] = ()
    failure: Failure | None = None


@dataclass(slots=True)
class Sheet:
    """All rows of one state.

    Attributes:
        text: the state as the prompts have it; spans point into it.
        asked: the questions, in order.
        endings: what follows the stem, one a row.
        labels: token ids of the answers, one tuple a row; empty where texts are scored.
        worded: texts of the answers, one tuple a row; empty where labels are scored.
    """

    text: str
    asked: list[Asked] = field(default_factory=list[Asked])
    endings: list[str] = field(default_factory=list[str])
    labels: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    worded: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])


def write_sheet(
    state: q.State, surface: Surface, *, max_rows: int, two_orders: bool, are_checked: bool = False
) -> Sheet:
    """Lay out the questions of a state. A question that cannot be asked gets its failure.

    Args:
        state: with its questions.
        surface: of the model.
        max_rows: most rows of all questions.
        two_orders: ask a choice in both orders of its options.
        are_checked: question_fault() has been asked about each of them.
    """
    writer = _Writer(Sheet(state_text(state)), surface, max_rows, two_orders=two_orders)
    for question in state.questions:
        writer.add(question, None if are_checked else question_fault(question))
    return writer.sheet


def state_text(state: q.State) -> str:
    """The state as prompts have it: text as it is, JSON compact, with the roles of its parts beside their keys."""
    if state.content.WhichOneof("kind") == "text" or not state.roles:
        return content_text(state.content)
    value: Any = from_json(state.content.json)
    if not isinstance(value, dict):
        return content_text(state.content)
    parts = {
        f"{key} ({state.roles[key]})" if key in state.roles else key: part
        for key, part in cast("dict[str, Any]", value).items()
    }
    return json_bytes(parts).decode()


def content_text(content: q.Content) -> str:
    """Content as prompts have it."""
    return content.text or content.json


class _Writer:
    def __init__(self, sheet: Sheet, surface: Surface, max_rows: int, *, two_orders: bool) -> None:
        self.sheet = sheet
        self._surface = surface
        self._max_rows = max_rows
        self._two_orders = two_orders
        self._places: list[Place] | None = None

    def add(self, question: q.Question, fault: QuestionFault | None) -> None:
        asked = Asked(question, first=len(self.sheet.endings))
        self.sheet.asked.append(asked)
        if fault is not None:
            asked.failure = Failure("invalid_question", *fault)
            return
        asked.kind = KINDS[question.type]
        asked.failure = self._write(asked)
        if asked.failure is None:
            asked.rows = len(self.sheet.endings) - asked.first

    def _write(self, asked: Asked) -> Failure | None:
        question = asked.question
        options = [_shown(option) for option in question.options]
        if asked.kind is Kind.SPAN:
            if self._places is None:
                self._places = words(self.sheet.text)
            asked.places = self._places
        if failure := self._too_many(asked, len(options)):
            return failure
        instructions = content_text(question.instructions)
        match asked.kind:
            case Kind.CHOICE | Kind.SCORE:
                return self._alternatives(asked.kind, instructions, options)
            case Kind.SET:
                for option in options:
                    self._yes_no(set_text(instructions, option))
            case Kind.SPAN:
                text = self.sheet.text
                for option in options:
                    for start, end in asked.places:
                        self._yes_no(span_text(instructions, option, text[start:end]))
            case _:
                said = {option.key: content_text(option.description) for option in question.options}
                self._yes_no(noul_text(instructions, said.get("true"), said.get("false")))
        return None

    def _alternatives(self, kind: Kind, instructions: str, options: list[ShownOption]) -> Failure | None:
        write = choice_text if kind is Kind.CHOICE else score_text
        orders = [options]
        if self._two_orders and kind is Kind.CHOICE and len(options) > 1:
            orders.append(options[::-1])
        if self._surface.is_worded(kind, len(options)):
            for each in orders:
                self._row(write(instructions, each, None), worded=tuple(option.text for option in each))
            return None
        labels = self._surface.labels.for_question(kind, len(options))
        if len(labels.ids) < len(options):
            return Failure("invalid_question", "question_malformed", _too_few(labels, len(options)))
        for each in orders:
            self._row(write(instructions, each, labels.names), labels=labels.ids)
        return None

    def _yes_no(self, ending: str) -> None:
        if self._surface.is_worded(Kind.NOUL):
            self._row(ending, worded=_YES_NO)
        else:
            self._row(ending, labels=self._surface.labels.noul.ids)

    def _row(self, ending: str, labels: tuple[int, ...] = (), worded: tuple[str, ...] = ()) -> None:
        self.sheet.endings.append(ending)
        self.sheet.labels.append(labels)
        self.sheet.worded.append(worded)

    def _too_many(self, asked: Asked, labels: int) -> Failure | None:
        rows = 1
        if asked.kind is Kind.SET:
            rows = labels
        elif asked.kind is Kind.SPAN:
            rows = labels * len(asked.places)
        if asked.first + rows <= self._max_rows:
            return None
        message = (
            f"the question comes to {rows} prompts, {asked.first + rows} with those before it; "
            f"at most {self._max_rows} are allowed"
        )
        return Failure(_TOO_MANY, "question_tokens", message)


def _shown(option: q.Option) -> ShownOption:
    return ShownOption(option.key, content_text(option.description) or None)


def _too_few(labels: LabelSet, options: int) -> str:
    return (
        f"the question has {options} options; this model's tokenizer has labels for {len(labels.ids)} at most"
    )
