"""Turns errors into System One's answers: one body that every reader of such errors understands.

`error` is an object (System One), `detail` a list for a 422 and a text otherwise (the standard's and its SDK's), and the
members stand flat beside them (vllm-sr/5.0). Reasons are fixed words; they never hold what a client sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from smg.errors import (
    BodyTooLarge,
    DeadlineExceeded,
    DecisionsRefused,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    PermissionDenied,
    QuestionFailed,
    Unauthenticated,
    UnusableScores,
    WorkerUnavailable,
)

if TYPE_CHECKING:
    from gateway.reply import Header
    from smg.errors import SmgError

OVERLOADED_STATUS = 529
BUSY_RETRY_S, NOT_READY_RETRY_S = 1, 5
# Classes whose word differs from ours, the most special first.
_CODES: tuple[tuple[type[SmgError], str], ...] = (
    (DecisionsRefused, ""),
    (UnusableScores, "invalid_model_output"),
    (ModelNotFound, "model_not_found"),
    (BodyTooLarge, "request_too_large"),
    (InvalidRequest, "invalid_request"),
    (Unauthenticated, "authentication_error"),
    (PermissionDenied, "permission_denied"),
    (Overloaded, "overloaded"),
    (WorkerUnavailable, "not_ready"),
    (DeadlineExceeded, "systemone_deadline_exceeded"),
)


def failure_answer(error: SmgError, *, has_529: bool = False) -> tuple[int, list[Header], bytes]:
    """Status, headers and body of an error.

    Args:
        error: what happened.
        has_529: a busy gateway answers 529, as vllm-sr/5.0 has it.
    """
    status, body = failure_body(error)
    headers: list[Header] = [(b"content-type", b"application/json")]
    retry_s = error.retry_after_s
    if status == Overloaded.http_status:
        retry_s = retry_s or BUSY_RETRY_S
        status = OVERLOADED_STATUS if has_529 else status
    elif status == WorkerUnavailable.http_status:
        # System One gives a model that is not ready more time than the gateway gives a worker.
        retry_s = max(retry_s or 0, NOT_READY_RETRY_S)
    if retry_s is not None:
        headers.append((b"retry-after", str(retry_s).encode()))
    headers.append((b"x-smg-error-code", body["code"].encode()))
    return status, headers, orjson.dumps(body)


def failure_body(error: SmgError) -> tuple[int, dict[str, Any]]:
    """Status and body of an error."""
    status = 500 if isinstance(error, UnusableScores) else error.status
    flat: dict[str, Any] = {"code": _code(error)}
    if isinstance(error, QuestionFailed):
        told = (error.question_error, error.question, error.state, error.reason, None)
    elif isinstance(error, DecisionsRefused):
        told = ("", error.question, error.state, error.reason, error.limit)
    else:
        told = ("", "", "", "", None)
    names = ("question_error", "question", "state", "reason", "limit")
    flat.update({name: value for name, value in zip(names, told, strict=True) if value not in ("", None)})
    body = {
        "error": {**flat, "type": error.type, "message": error.message},
        "detail": _detail(error, status, flat["code"]),
        **flat,
    }
    return status, body


def _code(error: SmgError) -> str:
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code or error.code
    return error.code


def _detail(error: SmgError, status: int, code: str) -> object:
    if status == 422:
        if isinstance(error, QuestionFailed):
            place = ("states", error.state) if error.state else ()
            return [
                {"loc": ["body", *place, "questions", question], "msg": message, "type": error.question_error}
                for question, message in error.failed
            ]
        return [{"loc": ["body", error.param or "model"], "msg": error.message, "type": code}]
    if status in (401, 403):
        return {"error_type": code, "message": error.message}
    return error.message
