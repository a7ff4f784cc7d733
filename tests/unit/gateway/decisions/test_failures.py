"""failure_answer(): one body for every reader of such errors, and when to try again."""

import json

import pytest

from gateway.decisions.failures import failure_answer
from smg import errors


def answered(error, **options):
    status, headers, body = failure_answer(error, **options)
    return status, {name.decode(): value.decode() for name, value in headers}, json.loads(body)


@pytest.mark.parametrize(
    ("error", "status", "code", "retry"),
    [
        (errors.DecisionsRefused("x"), 400, "invalid_request", None),
        (errors.MalformedRequest("x"), 400, "invalid_request", None),
        (errors.ModelNotFound("x"), 404, "model_not_found", None),
        (errors.DecisionsTooLarge("x", limit=5), 413, "request_too_large", None),
        (errors.BodyTooLarge("x"), 413, "request_too_large", None),
        (errors.UnsupportedMediaType("x"), 415, "unsupported_media_type", None),
        (errors.UnsupportedSurface("x"), 422, "unsupported_surface", None),
        (errors.Overloaded("x"), 429, "overloaded", "1"),
        (errors.Overloaded("x", retry_after_s=7), 429, "overloaded", "7"),
        (errors.WorkerUnavailable("x"), 503, "not_ready", "5"),
        (errors.DeadlineExceeded("x"), 504, "systemone_deadline_exceeded", None),
        (errors.UnusableScores("x"), 500, "invalid_model_output", None),
        (errors.EngineError("x", engine_code=3), 400, "start_generation_failed", None),
    ],
)
def test_each_error_has_its_word_and_its_status(error, status, code, retry):
    found, headers, body = answered(error)
    assert (found, body["code"], body["error"]["code"]) == (status, code, code)
    assert headers.get("retry-after") == retry
    assert body["error"]["message"] == "x"
    assert body["detail"] == (
        [{"loc": ["body", "model"], "msg": "x", "type": code}] if status == 422 else "x"
    )


def test_a_busy_gateway_is_529_in_schema_5():
    status, headers, _ = answered(errors.Overloaded("x"), has_529=True)
    assert (status, headers["retry-after"]) == (529, "1")


def test_a_key_is_asked_for_in_the_standards_form():
    status, _, body = answered(errors.Unauthenticated("x"))
    assert (status, body["detail"]) == (401, {"error_type": "authentication_error", "message": "x"})


def test_a_failed_question_tells_which_and_why_and_all_that_failed():
    error = errors.QuestionFailed(
        "a: one; b: two",
        question_error="max_length_exceeded",
        question="a",
        reason="question_tokens",
        state="s",
        failed=(("a", "one"), ("b", "two")),
    )
    status, _, body = answered(error)
    assert status == 400
    flat = {name: body[name] for name in ("code", "question_error", "question", "state", "reason")}
    assert flat == {
        "code": "question_failed",
        "question_error": "max_length_exceeded",
        "question": "a",
        "state": "s",
        "reason": "question_tokens",
    }
    assert body["error"].items() >= flat.items()


def test_a_limit_is_told_as_a_number():
    _, _, body = answered(errors.DecisionsRefused("x", reason="request_tokens", limit=3000))
    assert (body["limit"], body["error"]["limit"]) == (3000, 3000)
