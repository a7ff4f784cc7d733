"""Reads and writes the OpenAI form: `input` and an array of questions, answered by an array in the same order.

Members that are not known are kept as names, and refused once the request is otherwise right: workers of ours could not
honour them. Values of choices never become names: true and "true" are two choices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from gateway.openai.explain import shown
from smg.errors import ContextTooLong, DecisionsRefused, InvalidRequest, MalformedRequest, UnusableScores
from smg.validation.decision import question_fault
from smg_proto.decision.v1 import decision_pb2
from smg_proto.decision.v1 import question_pb2 as q

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from smg_proto.decision.v1 import answer_pb2

MAX_TEXT_CHARS = 10_485_760
MAX_CHARS = 1_048_576
MAX_IDENTIFIER_CHARS = 128
MAX_IMAGES = 128
UNSUPPORTED = "unsupported_decisions_request"
_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)
_TYPES = {
    "predicate": q.QUESTION_TYPE_NOUL,
    "choice": q.QUESTION_TYPE_CHOICE,
    "score": q.QUESTION_TYPE_SCORE,
}
_MEMBERS = {
    "predicate": {"type", "name", "instructions"},
    "choice": {"type", "name", "instructions", "choices"},
    "score": {"type", "name", "instructions", "levels"},
}


@dataclass(slots=True)
class OpenAIRequest:
    """A request in this form.

    Attributes:
        model: as the client names it.
        request: what is asked.
        questions: as they came, for the answer: names, values of choices, labels.
        extras: members that are not known, as paths.
        images: how many image parts the input has.
    """

    model: str
    request: decision_pb2.DecideRequest
    questions: list[dict[str, Any]]
    extras: list[str] = field(default_factory=list[str])
    images: int = 0

    def refuse_unsupported(self) -> None:
        """Refuse what is well formed and cannot be answered by workers that score labels.

        Raises:
            DecisionsRefused: with the code unsupported_decisions_request.
        """
        if self.extras:
            names = ", ".join(each[:60] for each in self.extras[:10])
            raise DecisionsRefused(f"not supported: {names}", code=UNSUPPORTED)
        if self.images:
            raise DecisionsRefused(
                "input_image parts are not supported: the evidence is text", code=UNSUPPORTED
            )
        (state,) = self.request.states
        if not state.content.text.strip():
            raise DecisionsRefused(
                "input has no text; some evidence is needed", code=UNSUPPORTED, param="input"
            )
        if not state.questions:
            raise DecisionsRefused(
                "questions is empty; at least one is needed", code=UNSUPPORTED, param="questions"
            )
        for number, question in enumerate(state.questions):
            if not question.instructions.text.strip():
                raise DecisionsRefused(
                    f"questions[{number}].instructions is blank", code=UNSUPPORTED, param="questions"
                )
            if fault := question_fault(question):
                raise DecisionsRefused(
                    f"questions[{number}]: {fault.message}", code=UNSUPPORTED, param="questions"
                )


def read_openai(body: dict[str, Any]) -> OpenAIRequest:
    """Read a body.

    Raises:
        MalformedRequest: a member is missing, or of another type.
        InvalidRequest: a length or image limit is passed.
    """
    model = _text(body, "model", "")
    found = OpenAIRequest(model, decision_pb2.DecideRequest(model=model), [])
    state = found.request.states.add()
    if "input" not in body:
        raise MalformedRequest(
            "input is missing; it is required: a text, or an array of user messages", param="input"
        )
    state.content.text = _evidence(body["input"], found)
    questions = body.get("questions")
    if not isinstance(questions, list):
        said = shown(questions) if "questions" in body else "missing"
        raise MalformedRequest(f"questions is {said}; it must be an array", param="questions")
    for number, question in enumerate(cast("list[Any]", questions)):
        _read_question(question, number, state, found)
    if body.get("safety_identifier") is not None:
        _text(body, "safety_identifier", "", MAX_IDENTIFIER_CHARS)
    found.extras += [
        each for each in body if each not in ("model", "input", "questions", "safety_identifier")
    ]
    return found


def _read_question(question: Any, number: int, state: q.State, found: OpenAIRequest) -> None:
    where = f"questions[{number}]"
    members = _object(question, where)
    kind = members.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        hint = ""
        if "question" in members or kind == "yes_no":
            hint = "; this looks like SGLang's own form: see state + questions{}"
        raise MalformedRequest(
            f"{where}.type is {shown(kind)}; it must be predicate, choice or score{hint}",
            param=f"{where}.type",
        )
    asked = state.questions.add(id=f"q{number}", type=_TYPES[kind])
    asked.instructions.text = _text(members, "instructions", where)
    if "name" in members:
        _text(members, "name", where)
    if kind == "choice":
        for place, choice in _items(members, "choices", where):
            _read_choice(choice, place, asked, found)
    elif kind == "score":
        for place, level in _items(members, "levels", where):
            entry = _object(level, place)
            option = asked.options.add(key=_text(entry, "label", place))
            _describe(option, entry, place)
            found.extras += _unknown(entry, {"label", "description"}, place)
    found.questions.append(members)
    found.extras += _unknown(members, _MEMBERS[kind], where)


def _read_choice(choice: Any, place: str, asked: q.Question, found: OpenAIRequest) -> None:
    entry = _object(choice, place)
    value = entry.get("value")
    if not isinstance(value, str | bool):
        raise MalformedRequest(
            f"{place}.value is {shown(value)}; it must be a string, true or false", param=f"{place}.value"
        )
    _check_length(value if isinstance(value, str) else "", f"{place}.value", MAX_CHARS)
    text = value if isinstance(value, str) else ("true" if value else "false")
    _describe(asked.options.add(key=text), entry, place)
    found.extras += _unknown(entry, {"value", "description"}, place)


def _describe(option: q.Option, entry: dict[str, Any], place: str) -> None:
    if entry.get("description") is not None:
        option.description.text = _text(entry, "description", place)


def _evidence(value: Any, found: OpenAIRequest) -> str:
    if isinstance(value, str):
        _check_length(value, "input", MAX_TEXT_CHARS)
        return value
    if not isinstance(value, list):
        raise MalformedRequest(
            f"input is {shown(value)}; it must be a string or an array of user messages", param="input"
        )
    messages = [
        _message(message, f"input[{number}]", found)
        for number, message in enumerate(cast("list[Any]", value))
    ]
    return "\n\n".join(messages)


def _message(message: Any, where: str, found: OpenAIRequest) -> str:
    members = _object(message, where)
    if members.get("role") != "user":
        raise MalformedRequest(
            f"{where}.role is {shown(members.get('role'))}; it must be 'user'", param=f"{where}.role"
        )
    if members.get("type", "message") != "message":
        raise MalformedRequest(
            f"{where}.type is {shown(members['type'])}; it must be 'message'", param=f"{where}.type"
        )
    found.extras += _unknown(members, {"role", "type", "content"}, where)
    content = members.get("content")
    if isinstance(content, str):
        _check_length(content, f"{where}.content", MAX_TEXT_CHARS)
        return content
    if not isinstance(content, list):
        raise MalformedRequest(
            f"{where}.content is {shown(content)}; it must be a string or an array of parts",
            param=f"{where}.content",
        )
    texts = [
        _content_part(part, f"{where}.content[{number}]", found)
        for number, part in enumerate(cast("list[Any]", content))
    ]
    return "\n".join(text for text in texts if text is not None)


def _content_part(part: Any, where: str, found: OpenAIRequest) -> str | None:
    members = _object(part, where)
    match members.get("type"):
        case "input_text":
            found.extras += _unknown(members, {"type", "text"}, where)
            return _text(members, "text", where, MAX_TEXT_CHARS)
        case "input_image":
            url = _text(members, "image_url", where, None)
            detail = members.get("detail")
            if detail is not None and detail not in ("low", "high", "auto", "original"):
                raise MalformedRequest(
                    f"{where}.detail is {shown(detail)}; it must be low, high, auto or original",
                    param=f"{where}.detail",
                )
            if _DATA_URL.match(url) is None:
                raise InvalidRequest(
                    f"{where}.image_url is {shown(url)}; it must be a base64 data URL of an image",
                    param=f"{where}.image_url",
                )
            found.images += 1
            if found.images > MAX_IMAGES:
                raise InvalidRequest(
                    f"input has more than {MAX_IMAGES} images; no more are allowed", param="input"
                )
            found.extras += _unknown(members, {"type", "image_url", "detail"}, where)
            return None
        case kind:
            raise MalformedRequest(
                f"{where}.type is {shown(kind)}; it must be input_text or input_image", param=f"{where}.type"
            )


def _object(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise MalformedRequest(f"{where} is {shown(value)}; it must be an object", param=where)


def _items(members: Mapping[str, Any], name: str, where: str) -> Iterable[tuple[str, Any]]:
    value = members.get(name)
    if not isinstance(value, list):
        said = shown(value) if name in members else "missing"
        raise MalformedRequest(f"{where}.{name} is {said}; it must be an array", param=f"{where}.{name}")
    return [(f"{where}.{name}[{number}]", each) for number, each in enumerate(cast("list[Any]", value))]


def _text(members: Mapping[str, Any], name: str, where: str, most: int | None = MAX_CHARS) -> str:
    value, path = members.get(name), f"{where}.{name}" if where else name
    if not isinstance(value, str):
        said = shown(value) if name in members else "missing"
        raise MalformedRequest(f"{path} is {said}; it must be a string", param=path)
    if most is not None:
        _check_length(value, path, most)
    return value


def _check_length(value: str, path: str, most: int) -> None:
    if len(value) > most:
        raise InvalidRequest(f"{path} has {len(value)} characters; at most {most} are allowed", param=path)


def _unknown(members: Mapping[str, Any], known: set[str], where: str) -> list[str]:
    return [f"{where}.{name}" for name in members if name not in known]


def write_openai(found: OpenAIRequest, response: decision_pb2.DecideResponse) -> dict[str, Any]:
    """The answer as a JSON object.

    Raises:
        UnusableScores: a question has no answer for the engine's fault.
        ContextTooLong: one is too long.
        DecisionsRefused: one has none for a reason of the model.
    """
    (state,) = response.states
    pairs = zip(found.questions, state.answers, strict=True)
    return {
        "model": response.model,
        "answers": [_written(question, answer) for question, answer in pairs],
        "usage": {
            "input_tokens": response.usage.prompt_tokens,
            "output_tokens": 0,
            "total_tokens": response.usage.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": min(response.usage.cached_tokens, response.usage.prompt_tokens),
                "cache_write_tokens": 0,
            },
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _written(question: dict[str, Any], answer: answer_pb2.Answer) -> dict[str, Any]:
    name = question.get("name")
    match answer.WhichOneof("result"):
        case "noul":
            return {"type": "predicate", "name": name, "probability": answer.noul.noul}
        case "choice":
            values = [each["value"] for each in question["choices"]]
            shares = zip(values, answer.choice.probabilities, strict=True)
            return {
                "type": "choice",
                "name": name,
                "choice": values[answer.choice.index],
                "confidence": answer.choice.confidence,
                "probabilities": [{"value": value, "probability": share} for value, share in shares],
            }
        case "score":
            shares = zip(question["levels"], answer.score.probabilities, strict=True)
            return {
                "type": "score",
                "name": name,
                "score": answer.score.score,
                "confidence": answer.score.confidence,
                "probabilities": [
                    {"value": value, "label": level["label"], "probability": share}
                    for value, (level, share) in enumerate(shares)
                ],
            }
        case _:
            failure = answer.failure
            if failure.error == "invalid_model_output":
                raise UnusableScores(failure.message)
            if failure.error == "max_length_exceeded":
                raise ContextTooLong(failure.message, param="input")
            raise DecisionsRefused(failure.message, code=UNSUPPORTED)
