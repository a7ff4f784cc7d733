"""What the document says of decisions and System One: their bodies and answers are read by hand, so they are told here."""

from __future__ import annotations

from typing import Any

from gateway.decisions.openai_form import MAX_CHARS, MAX_IDENTIFIER_CHARS
from gateway.decisions.question_form import TYPES
from gateway.openapi.decision_examples import DECISION_EXAMPLES
from gateway.openapi.responses import WITH_BODY, WITH_ENGINE, errors, response, schema_ref
from smg.decisions.kinds import MAX_LEVELS, MAX_OPTIONS

Json = dict[str, Any]

TAG: Json = {"name": "decisions", "description": "Typed answers with probabilities, without generating text."}


def decision_schemas() -> Json:
    """Schemas by name."""
    text: Json = {"type": "string", "maxLength": MAX_CHARS}
    anything: Json = {"type": "object"}
    return {
        "DecisionsRequest": {
            "type": "object",
            "required": ["model", "input", "questions"],
            "properties": {
                "model": text,
                "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": anything}]},
                "questions": {"type": "array", "items": schema_ref("DecisionsQuestion")},
                "safety_identifier": {"type": "string", "maxLength": MAX_IDENTIFIER_CHARS},
            },
        },
        "DecisionsQuestion": {
            "type": "object",
            "required": ["type", "instructions"],
            "properties": {
                "type": {"enum": ["predicate", "choice", "score"]},
                "instructions": text,
                "name": text,
                "choices": {"type": "array", "maxItems": MAX_OPTIONS, "items": anything},
                "levels": {"type": "array", "maxItems": MAX_LEVELS, "items": anything},
            },
        },
        "DecisionsAnswer": {
            "type": "object",
            "required": ["model", "answers", "usage"],
            "properties": {
                "model": {"type": "string"},
                "answers": {"type": "array", "items": anything},
                "usage": anything,
            },
        },
        "StateRequest": {
            "type": "object",
            "description": "`state` and `questions`, or `states`: a map of such by name.",
            "properties": {
                "model": {"type": ["string", "null"]},
                "state": {"type": ["string", "object", "array"]},
                "questions": {"type": "object", "additionalProperties": schema_ref("StateQuestion")},
                "states": {"type": "object", "additionalProperties": {"type": "object"}},
                "roles": {"type": ["object", "null"]},
                "images": {"type": ["array", "null"], "items": {"type": "string"}},
                "videos": {"type": ["array", "null"], "items": {"type": "string"}},
                "assets": {"type": ["object", "null"]},
                "options": {"anyOf": [schema_ref("DecisionOptions"), {"type": "null"}]},
            },
        },
        "DecisionOptions": {
            "type": "object",
            "properties": {
                "deadline_ms": {"type": ["integer", "null"], "minimum": 1},
                "max_tokens": {"type": ["integer", "null"], "minimum": 1},
                "return_meta": {"type": ["boolean", "null"]},
                "long_context": {"type": ["boolean", "null"]},
                "overflow": {"enum": ["reject", None]},
            },
        },
        "StateQuestion": {
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": {"enum": list(TYPES)},
                "instructions": {"type": ["string", "object", "array", "null"]},
                "criteria": {"type": ["object", "array", "null"]},
                "choices": {"type": "array", "items": anything},
                "levels": {"type": "array", "maxItems": MAX_LEVELS},
                "labels": {"type": "array", "items": anything},
                "threshold": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
                "preset": {"type": "string"},
                "at": {"type": "number"},
                "rate": {"type": "number"},
            },
        },
        "StateAnswer": {
            "type": "object",
            "required": ["model", "usage"],
            "properties": {
                "model": {"type": "string"},
                "answers": {"type": "object"},
                "spans": {"type": "object"},
                "sets": {"type": "object"},
                "thresholds": {"type": "object"},
                "states": {"type": "object"},
                "usage": anything,
                "meta": {"type": "object"},
            },
        },
        "SystemOneBatch": {
            "type": "object",
            "properties": {
                "requests": {
                    "type": "object",
                    "description": "Each a `StateRequest`. One that is not fails alone, with its status.",
                    "additionalProperties": {"type": "object"},
                },
                "states": {"type": "object"},
                "model": {"type": ["string", "null"]},
                "options": {"anyOf": [schema_ref("DecisionOptions"), {"type": "null"}]},
            },
        },
        "SystemOneBatchAnswer": {
            "type": "object",
            "required": ["responses", "usage"],
            "properties": {"responses": {"type": "object"}, "usage": anything},
        },
        "DecisionModels": {
            "type": "object",
            "required": ["models", "limits", "api_version"],
            "properties": {
                "models": {"type": "array", "items": anything},
                "limits": anything,
                "api_version": {"type": "string"},
                "systemone_schema": {"type": "string"},
            },
        },
        "DecisionError": {
            "type": "object",
            "required": ["error", "detail", "code"],
            "properties": {
                "error": {"type": "object"},
                "detail": {"type": ["string", "array", "object"]},
                **{
                    name: {"type": "string"}
                    for name in ("code", "question_error", "question", "state", "reason")
                },
                "limit": {"type": "integer"},
            },
        },
    }


def decision_paths() -> Json:
    """Path items by path."""
    return {
        "/v1/decisions": {
            "post": _asking(
                "createDecisions",
                "Answer questions about evidence",
                ("DecisionsRequest", "StateRequest"),
                ("DecisionsAnswer", "StateAnswer"),
            )
        },
        "/v1/systemone": {
            "post": _asking(
                "createSystemOne", "The same for System One's clients", ("StateRequest",), ("StateAnswer",)
            )
        },
        "/v1/systemone/batch": {
            "post": _asking(
                "createSystemOneBatch",
                "Several requests by name",
                ("SystemOneBatch",),
                ("SystemOneBatchAnswer",),
            )
        },
        "/v1/systemone/models": {
            "get": {
                "operationId": "listDecisionModels",
                "summary": "The models that answer questions",
                "tags": ["decisions"],
                "security": [],
                "parameters": [{"$ref": "#/components/parameters/RequestId"}],
                "responses": {"200": response("The models.", _content("DecisionModels")), **errors()},
            }
        },
    }


# What the handlers add to every answer, and to errors.
_TIMED: Json = {
    "Server-Timing": {"$ref": "#/components/headers/ServerTiming"},
    "X-TypeSafe-Request-Id": {"$ref": "#/components/headers/TypeSafeRequestId"},
}
_WORKER: Json = {"x-smg-routed-worker-id": {"$ref": "#/components/headers/RoutedWorkerId"}}
_FAILED: Json = {
    **_TIMED,
    "X-SMG-Error-Code": {"$ref": "#/components/headers/ErrorCode"},
    "Retry-After": {"$ref": "#/components/headers/RetryAfter"},
}
_OWN = {
    "400": "The request as a whole is refused, or a question is too long.",
    "401": "A key is missing or unknown.",
    "404": "There is no such model.",
    "413": "The body, as sent or decoded, has more bytes than the gateway allows.",
    "415": "Another coding than one layer of gzip or zstd, or another content type.",
    "422": "A question failed, or the model does not serve this.",
    "429": "The gateway is busy.",
    "500": "A failure of the gateway, of the engine, or of its scores.",
    "502": "The engine's scores cannot be turned into answers.",
    "503": "No worker can take it now.",
    "504": "It took longer than is allowed.",
    "529": "The gateway is busy (schema vllm-sr/5.0).",
}


def _asking(operation_id: str, summary: str, takes: tuple[str, ...], answers: tuple[str, ...]) -> Json:
    headers = ("RequestId", "RoutingKey", "TraceParent")
    both = len(takes) > 1
    # OpenAI's form has the gateway's own errors, and a missing key has no body there.
    forms = ("DecisionError", "GatewayError", "RequestError") if both else ("DecisionError",)
    failed = {
        status: response(said, _content(*forms), _FAILED)
        for status, said in _OWN.items()
        if not (both and status == "401")
    }
    return {
        "operationId": operation_id,
        "summary": summary,
        "tags": ["decisions"],
        "security": [{"bearer": []}],
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in headers],
        "requestBody": {
            "required": True,
            "content": {**_content(*takes), "multipart/form-data": {"schema": {"type": "object"}}},
        },
        "responses": {
            "200": response("The answers.", _content(*answers), {**_TIMED, **_WORKER}),
            **errors(*WITH_BODY, *WITH_ENGINE),
            **failed,
        },
    }


def _content(*names: str) -> Json:
    refs = [schema_ref(name) for name in names]
    schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
    examples = {name: {"value": DECISION_EXAMPLES[name]} for name in names if name in DECISION_EXAMPLES}
    return {"application/json": {"schema": schema, "examples": examples}}
