"""What the document says of responses."""

from __future__ import annotations

from typing import Any

from gateway.openapi.requests import RESPONSE_REQUEST
from gateway.openapi.responses import WITH_BODY, WITH_ENGINE, errors, json_content, response

Json = dict[str, Any]

RESPONSES_TAG = {
    "name": "responses",
    "description": "Answers with tools that the gateway runs and turns that it remembers.",
}
_OBJECT: Json = {
    "type": "object",
    "required": ["id", "object", "status", "output"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "status": {"type": "string", "enum": ["completed", "incomplete", "failed"]},
        "output": {"type": "array", "items": {"type": "object", "required": ["type", "id"]}},
    },
}
_EXAMPLE: Json = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1705312345,
    "status": "completed",
    "model": "my-org/my-model",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Paris.", "annotations": []}],
            "status": "completed",
        }
    ],
}
_LIST: Json = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
_ID: Json = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def response_paths() -> Json:
    """Path items by path."""
    one = "/v1/responses/{id}"
    shown = _shown(_OBJECT, _EXAMPLE)
    gone = {"id": "resp_1", "object": "response.deleted", "deleted": True}
    event = {
        "type": "object",
        "required": ["event", "data"],
        "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    }
    data = '{"type":"response.output_text.delta","sequence_number":4,"output_index":0,"delta":"Paris"}'
    stream = {"event": "response.output_text.delta", "data": data}
    created = response(
        "The response, or its events with `stream: true`.",
        {
            **shown["content"],
            "text/event-stream": {"schema": event, "examples": {"delta": {"value": stream}}},
        },
    )
    create = _operation(
        "createResponse", "Answer, with state and tools", created, *WITH_BODY, *WITH_ENGINE, 424
    )
    create["requestBody"] = {"required": True, "content": json_content(RESPONSE_REQUEST)}
    return {
        "/v1/responses": {"post": create},
        one: {
            "get": _operation("getResponse", "A stored response", shown, 401, 404, path=True),
            "delete": _operation(
                "deleteResponse",
                "Forget a response",
                _shown({"type": "object", "required": [*gone]}, gone),
                401,
                404,
                path=True,
            ),
        },
        f"{one}/cancel": {
            "post": _operation("cancelResponse", "Stop a response", shown, 400, 401, 404, path=True)
        },
        f"{one}/input_items": {
            "get": _operation(
                "listInputItems",
                "What was sent with a response",
                _shown({"type": "object", "required": [*_LIST]}, _LIST),
                401,
                404,
                path=True,
            )
        },
    }


def _operation(operation_id: str, summary: str, answer: Json, *statuses: int, path: bool = False) -> Json:
    return {
        "operationId": operation_id,
        "summary": summary,
        "tags": [RESPONSES_TAG["name"]],
        "security": [{"bearer": []}],
        "parameters": [*([_ID] if path else []), {"$ref": "#/components/parameters/RequestId"}],
        "responses": {"200": answer, **errors(*statuses)},
    }


def _shown(schema: Json, example: Json) -> Json:
    return response("It.", {"application/json": {"schema": schema, "examples": {"it": {"value": example}}}})
