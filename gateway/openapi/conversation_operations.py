"""What the document says of conversations."""

from __future__ import annotations

from typing import Any

from gateway.openapi.responses import errors, response
from gateway.responses.conversations import INCLUDABLE
from smg.pipelines.conversations import (
    MAX_NAME_CHARS,
    MAX_NEW_ITEMS,
    MAX_PAGE,
    MAX_PROPERTIES,
    MAX_TEXT_CHARS,
)
from smg.responses.items import MAX_ITEM_ID_CHARS

Json = dict[str, Any]

CONVERSATIONS_TAG = {"name": "conversations", "description": "What was said, kept by the gateway."}

_CONVERSATION: Json = {
    "id": "conv_1",
    "object": "conversation",
    "created_at": 1705312345,
    "metadata": {"topic": "demo"},
}
_ITEM: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "Hello"}],
    "status": "completed",
}
_LIST: Json = {"object": "list", "data": [_ITEM], "has_more": False, "first_id": "msg_1", "last_id": "msg_1"}
_METADATA: Json = {
    "type": "object",
    "maxProperties": MAX_PROPERTIES,
    "propertyNames": {"maxLength": MAX_NAME_CHARS},
    "additionalProperties": {"type": "string", "maxLength": MAX_TEXT_CHARS},
}
_NEW_ITEMS: Json = {
    "type": "array",
    "maxItems": MAX_NEW_ITEMS,
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1, "maxLength": MAX_ITEM_ID_CHARS},
            "type": {"type": "string"},
        },
    },
}
_ID: Json = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
_KINDS = ("null", "boolean", "number", "string", "array", "object")
_ITEM_ID: Json = {**_ID, "name": "item_id"}


def conversation_paths() -> Json:
    """Path items by path."""
    one, items = "/v1/conversations/{id}", "/v1/conversations/{id}/items"
    changes = {**_METADATA, "additionalProperties": {"type": ["string", "null"], "maxLength": MAX_TEXT_CHARS}}
    conversation, page = _shown(_CONVERSATION), _shown(_LIST)
    gone = _shown({"id": "conv_1", "object": "conversation.deleted", "deleted": True})
    return {
        "/v1/conversations": {
            "post": _operation(
                "createConversation",
                "Begin a conversation",
                {"200": conversation, **_refused(400)},
                body={"metadata": _METADATA, "items": {**_NEW_ITEMS, "type": ["array", "null"]}},
                example={"metadata": {"topic": "demo"}},
            )
        },
        one: {
            "get": _operation(
                "getConversation", "One conversation", {"200": conversation, **_refused(404)}, _ID
            ),
            "post": _operation(
                "updateConversation",
                "Merge metadata; null deletes",
                {"200": conversation, **_refused(400, 404)},
                _ID,
                body={"metadata": changes},
                example={"metadata": {"topic": "other", "project": None}},
            ),
            "delete": _operation("deleteConversation", "Forget one", {"200": gone, **_refused(404)}, _ID),
        },
        items: {
            "get": _operation(
                "listConversationItems",
                "A page of items, the newest first unless asked otherwise",
                {"200": page, **_refused(400, 404)},
                _ID,
                _query("limit", {"type": "integer", "minimum": 0, "default": MAX_PAGE}),
                _query(
                    "order",
                    {"type": "string", "default": "desc"},
                    "`asc`; anything else is the newest first.",
                ),
                _query("after", {"type": "string"}),
            ),
            "post": _operation(
                "createConversationItems",
                "Add items, all or none",
                {"200": page, **_refused(400, 404)},
                _ID,
                body={"items": _NEW_ITEMS},
                example={"items": [{"type": "message", "role": "user", "content": "Hello"}]},
                required=["items"],
            ),
        },
        f"{items}/{{item_id}}": {
            "get": _operation(
                "getConversationItem",
                "One item",
                {"200": _shown(_ITEM), **_refused(400, 404)},
                _ID,
                _ITEM_ID,
                _query("include", {"type": "array", "items": {"type": "string", "enum": [*INCLUDABLE]}}),
            ),
            "delete": _operation(
                "deleteConversationItem",
                "Take an item out of a conversation",
                {"200": conversation, **_refused(404)},
                _ID,
                _ITEM_ID,
            ),
        },
    }


def _operation(
    operation_id: str,
    summary: str,
    responses: Json,
    *parameters: Json,
    body: Json | None = None,
    example: Json | None = None,
    required: list[str] | None = None,
) -> Json:
    operation: Json = {
        "operationId": operation_id,
        "summary": summary,
        "tags": [CONVERSATIONS_TAG["name"]],
        "security": [{"bearer": []}],
        "parameters": [*parameters, {"$ref": "#/components/parameters/RequestId"}],
        # What is told in this path's own form stands for the common errors of the same status.
        "responses": {**errors(401, 413, 504), **responses, **_refused(429, 500, 503)},
    }
    if body is not None:
        schema: Json = {"type": "object", "properties": body, "required": required or []}
        if required is None:
            # A body that is no object says nothing.
            schema = {"anyOf": [schema, {"type": [kind for kind in _KINDS if kind != "object"]}]}
        content: Json = {
            "schema": schema,
            "examples": {operation_id: {"value": example}},
        }
        operation["requestBody"] = {
            "required": required is not None,
            "content": {"application/json": content},
        }
    return operation


def _shown(example: Json) -> Json:
    """An answer with the members of an example."""
    schema = {"type": "object", "required": [*example]}
    return response("It.", {"application/json": {"schema": schema, "examples": {"it": {"value": example}}}})


def _query(name: str, schema: Json, description: str = "") -> Json:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _refused(*statuses: int) -> Json:
    schema: Json = {
        "type": "object",
        "properties": {"error": {"type": ["string", "object"]}},
        "required": ["error"],
    }
    why = {"application/json": {"schema": schema, "examples": {"why": {"value": {"error": "why not"}}}}}
    return {str(status): response("Why not.", why) for status in statuses}
