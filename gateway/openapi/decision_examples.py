"""Examples of decisions and System One, by the name of their schema."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_STATE_QUESTIONS: Json = {
    "refund": {"type": "noul", "instructions": "Does the customer ask for money back?"},
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "Payments", "sales": None},
    },
    "anger": {"type": "score", "criteria": ["calm", "annoyed", "furious"]},
}
_STATE_ANSWERS: Json = {
    "refund": {"type": "noul", "noul": 0.93, "x_label_mass": 0.98},
    "team": {
        "type": "choice",
        "choice": "billing",
        "probabilities": {"billing": 0.9, "sales": 0.1},
        "confidence": 0.8,
        "x_label_mass": 0.95,
    },
}
_USED: Json = {"input_tokens": 96, "output_tokens": 0}
_STATE_REQUEST: Json = {"state": "I was charged twice. Please refund me.", "questions": _STATE_QUESTIONS}
_STATE_ANSWER: Json = {"model": "my-org/my-model", "answers": _STATE_ANSWERS, "usage": _USED}

DECISION_EXAMPLES: Json = {
    "DecisionsRequest": {
        "model": "my-org/my-model",
        "input": "The delivery arrived a day late, but the package was intact.",
        "questions": [{"type": "predicate", "instructions": "Did the delivery arrive on time?"}],
    },
    "DecisionsAnswer": {
        "model": "my-org/my-model",
        "answers": [{"type": "predicate", "name": None, "probability": 0.11}],
        "usage": {
            "input_tokens": 60,
            "output_tokens": 0,
            "total_tokens": 60,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    },
    "StateRequest": _STATE_REQUEST,
    "StateAnswer": _STATE_ANSWER,
    "SystemOneBatch": {"requests": {"first": _STATE_REQUEST}},
    "SystemOneBatchAnswer": {"responses": {"first": _STATE_ANSWER}, "usage": _USED},
    "DecisionModels": {
        "models": [{"name": "my-org/my-model", "description": "A chat model.", "release_date": "1970-01-01"}],
        "limits": {"max_request_bytes": 50331648},
        "api_version": "5.0.0",
    },
    "DecisionError": {
        "error": {"code": "question_failed", "message": "team: criteria is missing"},
        "detail": [
            {"loc": ["body", "questions", "team"], "msg": "criteria is missing", "type": "invalid_question"}
        ],
        "code": "question_failed",
    },
}
