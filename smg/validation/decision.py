"""Rules for decision requests: those that end the request, and those that fail a question alone.

Checked on the message, so that both doors have the same. What only one JSON form says differently (System One wants
two options at least) is checked where that form is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import from_json

from smg.decisions.kinds import MAX_LEVELS, MAX_OPTIONS
from smg.errors import DecisionsRefused
from smg_proto.decision.v1 import question_pb2 as q

if TYPE_CHECKING:
    from smg_proto.decision.v1 import decision_pb2

MALFORMED = "question_malformed"
MAX_ID_CHARS = 1024
_SHOWN = 60
_NOUL_KEYS = ("true", "false")
_UNREAD = {
    q.QUESTION_TYPE_BOX: ("box_unsupported", "no served model answers box questions"),
    q.QUESTION_TYPE_TRACK: ("track_unsupported", "no served model answers track questions"),
}


class QuestionFault(NamedTuple):
    """Why a question is not asked.

    Attributes:
        reason: a fixed word.
        message: names the member, its value and what is allowed.
    """

    reason: str
    message: str


class RequestBounds(NamedTuple):
    """How much one request may ask.

    Attributes:
        max_states: states in a batch. max_questions: about one state.
        max_deadline_s: longest deadline.
    """

    max_states: int
    max_questions: int
    max_deadline_s: float


def validate_decide(request: decision_pb2.DecideRequest, bounds: RequestBounds) -> None:
    """Check what concerns the request as a whole.

    Raises:
        DecisionsRefused: a rule is broken.
    """
    if not request.states:
        raise DecisionsRefused("states is empty; at least one state is needed", param="states")
    if len(request.states) > bounds.max_states:
        raise DecisionsRefused(
            f"the batch has {len(request.states)} states; at most {bounds.max_states} are allowed",
            param="states",
            limit=bounds.max_states,
        )
    names: set[str] = set()
    for state in request.states:
        where = f"states.{state.name[:_SHOWN]}." if len(request.states) > 1 else ""
        if state.name in names:
            raise DecisionsRefused(f"two states are named {state.name[:_SHOWN]!r}", param="states")
        names.add(state.name)
        _check_state(state, where, bounds)
    _check_options(request.options, bounds)


def question_fault(question: q.Question) -> QuestionFault | None:
    """What is wrong with one question; None when nothing is."""
    if question.type in _UNREAD:
        return QuestionFault(*_UNREAD[question.type])
    if question.has_images:
        return QuestionFault("question_images_unsupported", "the model reads no images in questions")
    said = _type_fault(question) or _json_fault(question) or _threshold_fault(question)
    return QuestionFault(MALFORMED, said) if said else None


def _check_state(state: q.State, where: str, bounds: RequestBounds) -> None:
    kind = state.content.WhichOneof("kind")
    if kind is None:
        raise DecisionsRefused(f"{where}state is missing; it is required", param=f"{where}state")
    if kind == "json" and not _is_json(state.content.json):
        raise DecisionsRefused(f"{where}state is not JSON", param=f"{where}state")
    if not state.questions:
        raise DecisionsRefused(
            f"{where}questions is empty; at least one question is needed", param=f"{where}questions"
        )
    if len(state.questions) > bounds.max_questions:
        raise DecisionsRefused(
            f"{where}questions has {len(state.questions)} entries; at most {bounds.max_questions} are allowed",
            param=f"{where}questions",
            limit=bounds.max_questions,
        )
    ids: set[str] = set()
    for question in state.questions:
        name = question.id
        if not 1 <= len(name) <= MAX_ID_CHARS:
            raise DecisionsRefused(
                f"{where}questions has an id of {len(name)} characters; allowed are 1 to {MAX_ID_CHARS}",
                param=f"{where}questions",
            )
        if name in ids:
            raise DecisionsRefused(
                f"{where}questions has the id {name[:_SHOWN]!r} twice", param=f"{where}questions"
            )
        ids.add(name)


def _check_options(options: decision_pb2.DecideOptions, bounds: RequestBounds) -> None:
    longest = round(bounds.max_deadline_s * 1000)
    if options.HasField("deadline_ms") and not 1 <= options.deadline_ms <= longest:
        raise DecisionsRefused(
            f"options.deadline_ms is {options.deadline_ms}; allowed is 1 to {longest}",
            param="options.deadline_ms",
            limit=longest,
        )
    if options.HasField("max_tokens") and not options.max_tokens:
        raise DecisionsRefused("options.max_tokens is 0; at least 1 is needed", param="options.max_tokens")


def _type_fault(question: q.Question) -> str:
    match question.type:
        case q.QUESTION_TYPE_NOUL:
            return _noul_fault(question)
        case q.QUESTION_TYPE_CHOICE:
            return _options_fault("choice", "options", len(question.options), MAX_OPTIONS)
        case q.QUESTION_TYPE_SCORE:
            return _levels_fault(question)
        case q.QUESTION_TYPE_SET | q.QUESTION_TYPE_SPAN:
            name = "set" if question.type == q.QUESTION_TYPE_SET else "span"
            keys = [option.key for option in question.options]
            return _options_fault(name, "labels", len(keys), MAX_OPTIONS) or _distinct_fault(name, keys)
        case _:
            return "type is not said; allowed are noul, choice, score, set, span, box and track"


def _noul_fault(question: q.Question) -> str:
    keys = [option.key for option in question.options]
    if keys and (not set(keys) <= set(_NOUL_KEYS) or len(keys) != len(set(keys))):
        return "noul questions describe the outcomes true and false only, each once"
    asks = question.instructions.text.strip() or question.instructions.json
    if not asks and not any(_says(option) for option in question.options):
        return "noul questions need instructions, or a description of an outcome"
    return ""


def _levels_fault(question: q.Question) -> str:
    count = len(question.options)
    if not 1 <= count <= MAX_LEVELS:
        return f"score questions have 1 to {MAX_LEVELS} levels; this one has {count}"
    for option in question.options:
        if not option.key and not _says(option):
            return "score questions describe each of their levels"
    return ""


def _options_fault(name: str, what: str, count: int, most: int) -> str:
    if not 1 <= count <= most:
        return f"{name} questions have 1 to {most} {what}; this one has {count}"
    return ""


def _distinct_fault(name: str, keys: list[str]) -> str:
    if len(set(keys)) == len(keys) and all(keys):
        return ""
    return f"the labels of {name} questions are not empty and differ from each other"


def _json_fault(question: q.Question) -> str:
    texts = [question.instructions.json, *[option.description.json for option in question.options]]
    for text in texts:
        if text and not _is_json(text):
            return "instructions or a description is not JSON"
    return ""


def _threshold_fault(question: q.Question) -> str:
    if not question.HasField("threshold"):
        return ""
    if question.type not in (q.QUESTION_TYPE_SET, q.QUESTION_TYPE_SPAN):
        return "threshold is allowed for set and span questions only"
    if not 0 <= question.threshold <= 1:
        return f"threshold is {question.threshold:g}; allowed is 0 to 1"
    return ""


def _says(option: q.Option) -> bool:
    return bool(option.description.text or option.description.json)


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True
