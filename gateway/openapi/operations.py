"""THE table of operations: what the document says of each path. A test holds it against the route table."""

from __future__ import annotations

from typing import Any

from gateway.openapi.admin_operations import ADMIN_TAG, admin_paths
from gateway.openapi.conversation_operations import CONVERSATIONS_TAG, conversation_paths
from gateway.openapi.decision_operations import TAG as DECISIONS_TAG
from gateway.openapi.decision_operations import decision_paths
from gateway.openapi.encode_operations import TAG as ENCODERS_TAG
from gateway.openapi.encode_operations import encode_paths
from gateway.openapi.requests import CHAT_REQUEST, COMPLETION_REQUEST
from gateway.openapi.response_operations import RESPONSES_TAG, response_paths
from gateway.openapi.responses import (
    WITH_BODY,
    WITH_ENGINE,
    errors,
    generated,
    json_content,
    response,
    text_content,
)
from smg.types.context import MAX_ID_LENGTH

Json = dict[str, Any]

TAGS = [
    {"name": "inference", "description": "Text from models."},
    DECISIONS_TAG,
    ENCODERS_TAG,
    {"name": "models", "description": "Which models can be asked for."},
    {"name": "operation", "description": "For probes, scrapers and tools; without a key."},
    RESPONSES_TAG,
    CONVERSATIONS_TAG,
    ADMIN_TAG,
]
SECURITY_SCHEMES: Json = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A configured key. A gateway without configured keys takes any or none.",
    }
}
PARAMETERS: Json = {
    "RequestId": {
        "name": "X-Request-ID",
        "in": "header",
        "description": "The request's id for logs: visible ASCII, at most "
        f"{MAX_ID_LENGTH} characters. Any other is replaced.",
        "schema": {"type": "string"},
    },
    "RoutingKey": {
        "name": "X-SMG-Routing-Key",
        "in": "header",
        "description": "Requests with the same key go to the same worker where the policy is one of keys. "
        "UTF-8 of at most 128 bytes; any other is ignored.",
        "schema": {"type": "string"},
    },
    "TraceParent": {
        "name": "traceparent",
        "in": "header",
        "description": "W3C trace context, passed on to the worker.",
        "schema": {"type": "string"},
    },
}
_MORE_RULES = (
    "Members that are null count as absent, others than these are ignored. An integer is written without a fraction. "
    "A few rules that join members or compare numbers (such as `min_tokens` and `max_tokens`) are not in the schema; "
    "the answer to a broken rule is a 400 whose message names the member, its value and what is allowed."
)


def paths() -> Json:
    """Path items by path."""
    return {
        "/v1/chat/completions": {
            "post": _inference("createChatCompletion", "Continue a conversation", CHAT_REQUEST, "Chat")
        },
        "/v1/completions": {
            "post": _inference("createCompletion", "Continue a text", COMPLETION_REQUEST, "Text")
        },
        **decision_paths(),
        **encode_paths(),
        "/v1/models": {"get": _models()},
        "/v1/models/{model}": {"get": _model()},
        "/health": {"get": _health()},
        "/health/live": {"get": _live()},
        "/liveness": {
            "get": _open(
                "getLiveness",
                "Whether the process answers",
                {"200": response("It does.", text_content("OK"))},
            )
        },
        "/readiness": {"get": _readiness()},
        "/metrics": {
            "get": _open(
                "getMetrics",
                "Metrics in Prometheus' text format",
                {"200": response("The metrics.", text_content())},
            )
        },
        "/openapi.json": {
            "get": _open(
                "getOpenapi",
                "This document",
                {"200": response("The document.", {"application/json": {"schema": {"type": "object"}}})},
            )
        },
        "/openapi.yaml": {
            "get": _open(
                "getOpenapiYaml",
                "This document as YAML",
                {"200": response("The document.", {"application/yaml": {"schema": {"type": "object"}}})},
            )
        },
        **response_paths(),
        **conversation_paths(),
        **admin_paths(),
    }


def _inference(operation_id: str, summary: str, body: str, answer: str) -> Json:
    schemas = (f"{answer}Completion", f"{answer}Chunk", f"{answer}StreamError")
    whole = generated("The whole answer, or events with `stream: true`.", *schemas)
    headers = ("RequestId", "RoutingKey", "TraceParent")
    return {
        "operationId": operation_id,
        "summary": summary,
        "description": _MORE_RULES,
        "tags": ["inference"],
        "security": [{"bearer": []}],
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in headers],
        "requestBody": {"required": True, "content": json_content(body)},
        "responses": {"200": whole, **errors(*WITH_BODY, *WITH_ENGINE)},
    }


def _open(operation_id: str, summary: str, responses: Json, *statuses: int, tag: str = "operation") -> Json:
    return {
        "operationId": operation_id,
        "summary": summary,
        "tags": [tag],
        "security": [],
        "parameters": [{"$ref": "#/components/parameters/RequestId"}],
        "responses": {**responses, **errors(*statuses)},
    }


def _models() -> Json:
    responses = {
        "200": response("The models.", json_content("ModelList")),
        "503": response("No worker serves any.", text_content("No models available")),
    }
    return _open("listModels", "The models that can be asked for", responses, tag="models")


def _model() -> Json:
    responses = {"200": response("The model.", json_content("ModelCard"))}
    operation = _open("getModel", "One model, by its id or an alias", responses, 404, tag="models")
    model = {
        "name": "model",
        "in": "path",
        "required": True,
        "description": "Slashes of the name may be sent as they are.",
        "schema": {"type": "string", "minLength": 1},
    }
    return {**operation, "parameters": [model, *operation["parameters"]]}


def _health() -> Json:
    responses = {
        "200": response("It does.", text_content("OK")),
        "503": response("It shuts down.", text_content("draining")),
    }
    return _open("getHealth", "Whether the gateway takes requests", responses)


def _live() -> Json:
    responses = {
        "200": response("It does.", json_content("Alive")),
        "503": response("Every engine stands still over its work.", json_content("Stalled")),
    }
    return _open("getHealthLive", "Whether the gateway answers and its engines make progress", responses)


def _readiness() -> Json:
    responses = {
        "200": response("Some worker takes work.", json_content("Ready")),
        "503": response("None does, or the gateway shuts down.", json_content("NotReady")),
    }
    return _open("getReadiness", "Whether some worker takes work", responses)
