"""Writes the answers of the state form: a map by question id, and beside it spans, sets and thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.decisions.question_form import NAMES, levels_of
from smg.errors import QuestionFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.decisions.state_form import StateRequest, StateView
    from smg_proto.decision.v1 import answer_pb2, decision_pb2

Json = dict[str, Any]


def write_state(
    found: StateRequest, response: decision_pb2.DecideResponse, timings: dict[str, float]
) -> Json:
    """The answer as a JSON object.

    Args:
        found: the request.
        response: what the pipeline made of it.
        timings: phases, for `meta`.
    """
    answered = {each.name: each for each in response.states}
    meta = _meta(response, timings)
    written = {
        view.name: {"model": response.model, **_state(view, answered.get(view.name)), **meta}
        for view in found.views
    }
    if not found.is_batch:
        return written[""]
    return {
        "model": response.model,
        "states": written,
        "usage": _usage(response.usage),
        **meta,
    }


def first_failure(found: StateRequest, response: decision_pb2.DecideResponse | None) -> QuestionFailed | None:
    """The error of a request that fails with its first failed question; None where none has failed.

    Args:
        found: the request.
        response: None before anything was asked: then only what is known by then counts.
    """
    answered = {each.name: each for each in response.states} if response is not None else {}
    failures = [each for view in found.views for each in failures_of(view, answered.get(view.name))]
    return failed_request(failures) if failures else None


Failed = tuple[str, str, str, str, str]


def failures_of(view: StateView, answers: answer_pb2.StateAnswers | None) -> Iterable[Failed]:
    """(state, question, error, reason, message) of each failed question of a state, in order."""
    by_id = {each.id: each for each in answers.answers} if answers is not None else {}
    for question in view.questions:
        if (refused := view.refused.get(question)) is not None:
            yield view.name, question, refused.error, refused.reason, refused.message
        elif question in by_id and by_id[question].HasField("failure"):
            failure = by_id[question].failure
            yield view.name, question, failure.error, failure.reason, failure.message


def failed_request(failures: list[Failed]) -> QuestionFailed:
    """The error of a request with these failures: the first decides, the message lists them all."""
    state, question, error, reason, _ = failures[0]
    listed = "; ".join(f"{each[1][:60]}: {each[4]}" for each in failures[:20])
    more = f"; and {len(failures) - 20} more" if len(failures) > 20 else ""
    return QuestionFailed(
        listed + more,
        question_error=error,
        question=question,
        reason=reason,
        state=state,
        failed=tuple((each[1], each[4]) for each in failures),
    )


def _state(view: StateView, answers: answer_pb2.StateAnswers | None) -> Json:
    by_id = {each.id: each for each in answers.answers} if answers is not None else {}
    written = _Written()
    for question, raw in view.questions.items():
        refused = view.refused.get(question)
        if refused is not None:
            written.fail(question, refused.type, refused.error, refused.reason, refused.message)
        else:
            written.add(by_id[question], raw)
    usage = _usage(answers.usage) if answers is not None else {"input_tokens": 0, "output_tokens": 0}
    return {**written.members(), "usage": usage}


def _usage(usage: answer_pb2.DecisionUsage) -> Json:
    return {"input_tokens": usage.input_tokens, "output_tokens": 0}


def _meta(response: decision_pb2.DecideResponse, timings: dict[str, float]) -> Json:
    if not response.HasField("meta"):
        return {}
    meta = response.meta
    return {
        "meta": {
            "revision": meta.revision,
            "model_digest": meta.model_digest,
            "dtype": meta.dtype,
            "numerics": meta.numerics,
            "engine": meta.engine,
            "device": meta.device,
            "prompt_version": meta.prompt_version,
            "readout": meta.readout,
            "timings": timings,
        }
    }


class _Written:
    def __init__(self) -> None:
        self._answers: Json = {}
        self._spans: Json = {}
        self._sets: Json = {}
        self._thresholds: Json = {}

    def members(self) -> Json:
        """Those that are there."""
        found: Json = {"answers": self._answers}
        more = {"spans": self._spans, "sets": self._sets, "thresholds": self._thresholds}
        return {**found, **{name: value for name, value in more.items() if value}}

    def fail(self, question: str, kind: str, error: str, reason: str, message: str) -> None:
        """A question without an answer."""
        failure = {"type": kind, "error": error, "reason": reason, "message": message}
        self._answers[question] = {name: value for name, value in failure.items() if value}

    def add(self, answer: answer_pb2.Answer, raw: Json) -> None:
        """A question's answer."""
        match answer.WhichOneof("result"):
            case "noul":
                self._answers[answer.id] = {"type": "noul", "noul": answer.noul.noul, **_mass(answer)}
            case "choice":
                self._answers[answer.id] = _choice(answer, raw)
            case "score":
                self._answers[answer.id] = _score(answer, raw)
            case "set":
                self._add_set(answer, raw)
            case "span":
                self._add_span(answer)
            case _:
                failure = answer.failure
                kind = NAMES.get(answer.type, "unknown")
                self.fail(answer.id, kind, failure.error, failure.reason, failure.message)

    def _add_set(self, answer: answer_pb2.Answer, raw: Json) -> None:
        shares = dict(zip(_keys(raw, "labels"), answer.set.probabilities, strict=True))
        threshold = answer.set.threshold
        self._answers.update(
            {f"{answer.id}.{key}": {"type": "noul", "noul": share} for key, share in shares.items()}
        )
        self._sets[answer.id] = {
            "selected": [key for key, share in shares.items() if share >= threshold],
            "probabilities": shares,
        }
        self._thresholds[answer.id] = threshold

    def _add_span(self, answer: answer_pb2.Answer) -> None:
        self._answers[answer.id] = {"type": "noul", "noul": answer.span.noul}
        self._spans[answer.id] = [
            {
                "label": each.label,
                "start": each.start,
                "end": each.end,
                "text": each.text,
                "probability": each.probability,
            }
            for each in answer.span.spans
        ]
        self._thresholds[answer.id] = answer.span.threshold


def _choice(answer: answer_pb2.Answer, raw: Json) -> Json:
    keys = _keys(raw, "choices")
    return {
        "type": "choice",
        "choice": keys[answer.choice.index],
        "probabilities": dict(zip(keys, answer.choice.probabilities, strict=True)),
        "confidence": answer.choice.confidence,
        **_mass(answer),
    }


def _score(answer: answer_pb2.Answer, raw: Json) -> Json:
    return {
        "type": "score",
        "score": answer.score.score,
        "legend": {str(number): level for number, level in enumerate(levels_of(raw))},
        "probabilities": {str(number): share for number, share in enumerate(answer.score.probabilities)},
        "confidence": answer.score.confidence,
        **_mass(answer),
    }


def _mass(answer: answer_pb2.Answer) -> Json:
    return {"x_label_mass": answer.label_mass} if answer.HasField("label_mass") else {}


def _keys(raw: Json, listed: str) -> list[str]:
    if "criteria" in raw:
        return list(raw["criteria"])
    return [entry["key"] for entry in raw[listed]]
