"""Bodies of decisions that are almost right: each becomes prompts and JSON again, or a short 4xx; never anything else."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given
from pydantic_core import from_json

from gateway.bodies.encoding import MAX_FRAMES, decoded
from gateway.decisions.failures import failure_answer
from gateway.decisions.forms import form_of
from gateway.decisions.openai_form import read_openai
from gateway.decisions.question_form import levels_of
from gateway.decisions.state_form import read_state
from smg.decisions.json_text import json_bytes
from smg.errors import DecisionsRefused, SmgError
from smg.pipelines.decide.questions import state_text
from smg.validation.decision import RequestBounds, validate_decide
from tests.fuzz.test_bodies import QUICK, bodies

BOUNDS = RequestBounds(8, 64, 60)
QUESTIONS: dict[str, Any] = {
    "n": {"type": "noul", "instructions": "Is it?", "criteria": {"true": "x"}},
    "c": {"type": "choice", "choices": [{"key": "a", "description": {"x": 1}}, {"key": "b"}]},
    "s": {"type": "score", "criteria": ["low", {"is": 1}]},
    "p": {"type": "span", "labels": [{"key": "a"}], "threshold": 0.5},
}
STATE: dict[str, Any] = {
    "model": "m",
    "state": {"a": "text", "b": 1},
    "roles": {"a": "user"},
    "questions": QUESTIONS,
    "options": {"deadline_ms": 10, "max_tokens": 5, "return_meta": True, "overflow": "reject"},
    "images": [],
}
OPENAI: dict[str, Any] = {
    "model": "m",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
    "questions": [
        {"type": "predicate", "instructions": "x", "name": "n"},
        {"type": "choice", "instructions": "x", "choices": [{"value": True}, {"value": "b"}]},
        {"type": "score", "instructions": "x", "levels": [{"label": "low"}, {"label": "high"}]},
    ],
    "safety_identifier": "s",
}
BIG = 10**30


def take(raw: bytes) -> None:
    try:
        body = from_json(raw, allow_inf_nan=False)  # as gateway/decisions/body.py does
    except ValueError:
        return
    if not isinstance(body, dict):
        return
    try:
        if form_of(body) == "openai":
            found = read_openai(body)
            found.refuse_unsupported()
            validate_decide(found.request, BOUNDS)
            return
        read = read_state(body, (), BOUNDS.max_questions)
        validate_decide(read.request, BOUNDS)
        for state in read.request.states:
            assert state_text(state) is not None
        for view in read.views:
            for name, question in view.questions.items():
                if name not in view.refused and question["type"] == "score":
                    json_bytes(levels_of(question))
    except SmgError as error:
        status, _, answer = failure_answer(error)
        assert 400 <= status < 500
        assert len(answer) < 20_000


@QUICK
@given(raw=bodies(STATE))
def test_a_body_of_the_state_form_is_taken_or_refused(raw: bytes) -> None:
    take(raw)


@QUICK
@given(raw=bodies(OPENAI))
def test_a_body_of_openais_form_is_taken_or_refused(raw: bytes) -> None:
    take(raw)


@pytest.mark.parametrize("kind", [{}, [], None, 1, {"a": []}])
def test_a_type_that_is_no_text_is_refused(kind: Any) -> None:
    with pytest.raises(SmgError, match="type is"):
        read_openai({**OPENAI, "questions": [{"type": kind, "instructions": "x"}]})


def test_a_threshold_beyond_doubles_fails_its_question() -> None:
    asked = {**QUESTIONS, "p": {**QUESTIONS["p"], "threshold": 10**400}}
    assert "threshold" in read_state({"state": "x", "questions": asked}).views[0].refused["p"].message


def test_numbers_beyond_64_bits_come_through_roles_and_levels() -> None:
    found = read_state({"state": {"a": BIG}, "roles": {"a": "user"}, "questions": QUESTIONS})
    assert state_text(found.request.states[0]) == f'{{"a (user)":{BIG}}}'
    assert json_bytes({"0": {"a": BIG}}) == f'{{"0":{{"a":{BIG}}}}}'.encode()


def test_too_many_questions_are_refused_before_they_are_read() -> None:
    with pytest.raises(DecisionsRefused, match="at most 64"):
        read_state({"state": "x", "questions": {str(number): {} for number in range(65)}}, (), 64)


def test_more_compressed_files_than_allowed_are_refused() -> None:
    with pytest.raises(DecisionsRefused, match="one after the other"):
        decoded(gzip.compress(b"") * (MAX_FRAMES + 1), "gzip", 1 << 20)
