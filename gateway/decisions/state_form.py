"""Reads the state form: `state` and a map of questions, or `states`, a batch of those. Strict: what it does not know it
names and refuses. A question that is malformed is set aside with its reason; the others are asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from gateway.decisions.assets import Assets, check_images, read_assets, refuse_media
from gateway.decisions.question_form import (
    NAMES,
    QuestionMalformed,
    compact,
    read_question,
)
from gateway.openai.explain import shown
from smg.errors import DecisionsRefused
from smg.validation.decision import MALFORMED, question_fault
from smg_proto.decision.v1 import decision_pb2
from smg_proto.decision.v1 import question_pb2 as q

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.bodies.multipart import Part

_TOP = ("model", "state", "states", "questions", "images", "videos", "assets", "options", "roles")
_ENTRY = ("state", "questions", "images", "videos", "roles")
_OPTIONS = ("deadline_ms", "max_tokens", "return_meta", "long_context", "overflow")
_MOST_UINT32 = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Refused:
    """A question that is not asked.

    Attributes:
        type: as the client named it. error: what kind of failure. reason: a fixed word. message: for people.
    """

    type: str
    error: str
    reason: str
    message: str


@dataclass(slots=True)
class StateView:
    """What the answer needs of one state's questions.

    Attributes:
        name: of the entry in a batch; empty where there is one state.
        questions: as they came, by id, in order.
        refused: those that are not asked.
    """

    name: str
    questions: Mapping[str, Any]
    refused: dict[str, Refused] = field(default_factory=dict[str, Refused])

    @property
    def is_refused(self) -> bool:
        """None of its questions is asked."""
        return len(self.refused) == len(self.questions)


@dataclass(slots=True)
class StateRequest:
    """A request in this form.

    Attributes:
        request: what is asked; without the states none of whose questions is.
        views: of all states, in order.
        is_batch: it came as `states`.
    """

    request: decision_pb2.DecideRequest
    views: list[StateView]
    is_batch: bool = False


def read_state(
    body: Mapping[str, Any], parts: Sequence[Part] = (), max_questions: int | None = None
) -> StateRequest:
    """Read a body.

    Args:
        body: the JSON object.
        parts: of a multipart body, all but the first.
        max_questions: most about one state; looked at before any of them is read.

    Raises:
        DecisionsRefused: the request as a whole is refused.
    """
    _refuse_unknown(body, _TOP, "")
    _refuse_many(body, max_questions)
    is_batch = "states" in body
    if is_batch:
        mixed = [name for name in ("state", "questions", "images", "videos", "roles") if name in body]
        if mixed:
            raise DecisionsRefused(
                f"states and {mixed[0]} are both there; a batch has them in its entries", param=mixed[0]
            )
    found = StateRequest(decision_pb2.DecideRequest(model=_model(body)), [], is_batch)
    _read_options(body.get("options"), found.request.options)
    assets = read_assets(body.get("assets"), parts)
    if is_batch:
        _read_batch(body["states"], found, assets)
    else:
        _read_entry("", body, found, assets)
        assets.refuse_unused()
    _refuse_if_all_are(found)
    return found


def _read_batch(states: Any, found: StateRequest, assets: Assets) -> None:
    if not isinstance(states, dict) or not cast("dict[str, Any]", states):
        raise _malformed("states", "an object with at least one entry", cast("object", states))
    refusals: list[DecisionsRefused] = []
    for name, entry in cast("dict[str, Any]", states).items():
        if not isinstance(entry, dict):
            raise _malformed(f"states.{name[:60]}", "an object with state and questions", entry)
        members = cast("dict[str, Any]", entry)
        _refuse_unknown(members, _ENTRY, f"states.{name[:60]}")
        try:
            _read_entry(name, members, found, assets)
        except _EntryRefused as refusal:
            refusals.append(refusal.error)
            found.views.append(refusal.view)
    assets.refuse_unused()
    if len(refusals) == len(found.views):
        refusals[0].state = found.views[0].name
        raise refusals[0]


class _EntryRefused(Exception):
    """The media of one entry of a batch are refused: each of its questions fails."""

    def __init__(self, view: StateView, error: DecisionsRefused) -> None:
        super().__init__(error.message)
        self.view = view
        self.error = error


def _read_entry(name: str, members: Mapping[str, Any], found: StateRequest, assets: Assets) -> None:
    where = f"states.{name[:60]}." if found.is_batch else ""
    if members.get("state") is None:
        raise DecisionsRefused(f"{where}state is missing; it is required", param=f"{where}state")
    questions = members.get("questions")
    if not isinstance(questions, dict) or not questions:
        said = "missing" if questions is None else shown(cast("object", questions))
        if isinstance(questions, dict):
            said = "empty"
        raise DecisionsRefused(
            f"{where}questions is {said}; it must be an object with at least one question",
            param=f"{where}questions",
        )
    view = StateView(name, cast("dict[str, Any]", questions))
    state = q.State(name=name)
    _put_state(state, members["state"], where)
    _read_roles(state, members, where)
    _read_questions(view, state, assets)
    try:
        uses = assets.uses_in(members["state"])
        refuse_media(
            check_images(members.get("images"), f"{where}images") + uses, members.get("videos"), where
        )
    except DecisionsRefused as error:
        if not found.is_batch:
            raise
        view.refused = {
            each: Refused(_named(question), "invalid_input", "input_malformed", error.message)
            for each, question in view.questions.items()
        }
        raise _EntryRefused(view, error) from error
    found.views.append(view)
    if state.questions:
        found.request.states.append(state)


def _read_questions(view: StateView, state: q.State, assets: Assets) -> None:
    for question_id, raw in view.questions.items():
        if not question_id:
            raise DecisionsRefused(
                "questions has an empty id; ids need a character at least", param="questions"
            )
        has_images = bool(assets.uses_in(raw))
        try:
            question = read_question(question_id, raw)
        except QuestionMalformed as fault:
            view.refused[question_id] = Refused(_named(raw), "invalid_question", MALFORMED, str(fault))
            continue
        question.has_images = has_images
        if fault := question_fault(question):
            view.refused[question_id] = Refused(
                NAMES[question.type], "invalid_question", fault.reason, fault.message
            )
        else:
            state.questions.append(question)


def _refuse_many(body: Mapping[str, Any], most: int | None) -> None:
    states = body.get("states")
    entries: list[Any] = list(cast("dict[str, Any]", states).values()) if isinstance(states, dict) else [body]
    for entry in entries:
        questions = cast("dict[str, Any]", entry).get("questions") if isinstance(entry, dict) else None
        if most is not None and isinstance(questions, dict) and len(cast("dict[str, Any]", questions)) > most:
            raise DecisionsRefused(
                f"questions has {len(cast('dict[str, Any]', questions))} entries; at most {most} are allowed",
                param="questions",
                limit=most,
            )


def _refuse_if_all_are(found: StateRequest) -> None:
    if found.request.states:
        return
    refused = [(view, each, why) for view in found.views for each, why in view.refused.items()]
    view, question, first = refused[0]
    raise NoQuestionValid(
        "no question is valid: " + "; ".join(f"{each[:60]}: {why.message}" for _, each, why in refused[:20]),
        reason=first.reason,
        question=question,
        state=view.name,
    ).with_views(found.views)


class NoQuestionValid(DecisionsRefused):
    """Every question of a request is refused.

    Attributes:
        views: of its states.
    """

    views: list[StateView]

    def with_views(self, views: list[StateView]) -> NoQuestionValid:
        """Keep what System One's answer tells of each question."""
        self.views = views
        return self


def _put_state(state: q.State, value: Any, where: str) -> None:
    if isinstance(value, str):
        state.content.text = value
    elif isinstance(value, dict | list):
        state.content.json = compact(cast("object", value))
    else:
        raise _malformed(f"{where}state", "text, an object or an array", value)


def _read_roles(state: q.State, members: Mapping[str, Any], where: str) -> None:
    roles = members.get("roles")
    if roles is None:
        return
    value = members["state"]
    if not isinstance(roles, dict) or not isinstance(value, dict):
        raise _malformed(
            f"{where}roles", "null, or an object of roles beside a state that is an object", roles
        )
    for key, role in cast("dict[str, Any]", roles).items():
        if key not in value or not isinstance(role, str) or not role:
            raise DecisionsRefused(
                f"{where}roles.{key[:60]} is {shown(role)}; roles are texts, by the keys of the state",
                param=f"{where}roles",
            )
        state.roles[key] = role


def _read_options(value: Any, options: decision_pb2.DecideOptions) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise _malformed("options", "an object", value)
    members = cast("dict[str, Any]", value)
    _refuse_unknown(members, _OPTIONS, "options")
    for name in ("deadline_ms", "max_tokens"):
        number = members.get(name)
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _MOST_UINT32:
            raise _malformed(f"options.{name}", "a whole number, at least 1", number)
        setattr(options, name, number)
    for name in ("return_meta", "long_context"):
        flag = members.get(name)
        if flag is not None and not isinstance(flag, bool):
            raise _malformed(f"options.{name}", "true or false", flag)
        setattr(options, name, bool(flag))
    if members.get("overflow") not in (None, "reject"):
        raise _malformed(
            "options.overflow", "'reject': the served models read an input whole", members["overflow"]
        )


def _model(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    if model is None:
        return ""
    if not isinstance(model, str):
        raise _malformed("model", "a string", model)
    return model


def _named(raw: Any) -> str:
    name = cast("dict[str, Any]", raw).get("type") if isinstance(raw, dict) else None
    return name[:60] if isinstance(name, str) else "unknown"


def _refuse_unknown(members: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    unknown = [name[:60] for name in members if name not in known]
    if unknown:
        said = f"{where or 'the request'} does not take {unknown[:10]}; it takes {', '.join(known)}"
        raise DecisionsRefused(said, param=unknown[0])


def _malformed(where: str, allowed: str, value: Any) -> DecisionsRefused:
    return DecisionsRefused(f"{where} is {shown(value)}; it must be {allowed}", param=where)
