"""What the document says of the operator's paths."""

from __future__ import annotations

from typing import Any

from gateway.openapi.responses import OPERATOR_REFUSALS, errors, response
from smg.services.admin import MAX_LABEL_CHARS, MAX_LABELS, MAX_MODEL_CHARS, MAX_MODELS

Json = dict[str, Any]

ADMIN_TAG = {"name": "administration", "description": "The workers, their loads and caches."}
_STRING: Json = {"type": "string"}
_LABELS: Json = {
    "type": "object",
    "maxProperties": MAX_LABELS,
    "additionalProperties": {"type": "string", "maxLength": MAX_LABEL_CHARS},
}
_MODELS: Json = {
    "type": "array",
    "maxItems": MAX_MODELS,
    "items": {"type": "string", "minLength": 1, "maxLength": MAX_MODEL_CHARS},
    "description": "Models that it is to be used for; none for all that it serves.",
}
_WORKER_ID: Json = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "As GET /workers lists it.",
    "schema": {"type": "string", "minLength": 1},
}
_DRAIN: Json = {
    "name": "drain",
    "in": "query",
    "description": "Let its running work end first.",
    "schema": {"type": "boolean", "default": True},
}


def admin_paths() -> Json:
    """Path items by path."""
    ok, accepted = _found("It.", {"id": _STRING, "url": _STRING, "status": _STRING}), _accepted()
    loads = {"200": response("The loads.", _content({"workers": {"type": "array"}}))}
    return {
        "/workers": {
            "get": _admin(
                "listWorkers", "All workers", {"200": _found("They.", {"workers": {"type": "array"}})}
            ),
            "post": _admin(
                "addWorker",
                "Add a worker; it is connected to in the background",
                {**_accepted({"Location": {"schema": _STRING}}), **_refused(400, 409, 429)},
                body={"url": _STRING, "labels": _LABELS, "models": _MODELS},
                required=["url"],
            ),
        },
        "/workers/{id}": {
            "get": _admin("getWorker", "One worker", {"200": ok, **_refused(404)}, _WORKER_ID),
            "put": _admin(
                "updateWorker",
                "Give a worker other labels, or take it out of service and back",
                {**accepted, **_refused(400, 404)},
                _WORKER_ID,
                body={"labels": _LABELS, "draining": {"type": "boolean"}},
            ),
            "delete": _admin(
                "removeWorker", "Remove a worker", {**accepted, **_refused(404)}, _WORKER_ID, _DRAIN
            ),
        },
        "/flush_cache": {
            "post": _admin(
                "flushCaches",
                "Make every worker forget its cached prefixes",
                {
                    "200": response("All have.", _content({"workers_flushed": {"type": "integer"}})),
                    "206": response("Some have not.", _content({"failed": {"type": "object"}})),
                },
            )
        },
        "/get_loads": {"get": _admin("getLoads", "What each worker does now", loads)},
        "/loads": {"get": {**_admin("listLoads", "The same, without a key", loads), "security": []}},
    }


def _admin(
    operation_id: str,
    summary: str,
    responses: Json,
    *parameters: Json,
    body: Json | None = None,
    required: list[str] | None = None,
) -> Json:
    operation: Json = {
        "operationId": operation_id,
        "summary": summary,
        "tags": [ADMIN_TAG["name"]],
        "security": [{"bearer": []}],
        "parameters": [*parameters, {"$ref": "#/components/parameters/RequestId"}],
        # What is told in this path's own form stands for the common errors of the same status.
        "responses": {**errors(413), **OPERATOR_REFUSALS, **responses},
    }
    if body is not None:
        schema = {"type": "object", "properties": body, "required": required or []}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _content(properties: Json) -> Json:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"application/json": {"schema": schema}}


def _found(what: str, members: Json) -> Json:
    return response(what, _content(members))


def _accepted(headers: Json | None = None) -> Json:
    content = _content({"status": _STRING, "worker_id": _STRING})
    return {"202": response("It is done, or will be.", content, headers)}


def _refused(*statuses: int) -> Json:
    members = {"error": _STRING, "code": _STRING}
    return {str(status): response("Why not.", _content(members)) for status in statuses}
