"""Response objects: headers, bodies, and every error that can come. Format: OpenAPI 3.1, Response Object."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.openapi.examples import EXAMPLES
from smg.errors import HTTP_STATUS

Json = dict[str, Any]

_REQUEST_ID: Json = {
    "x-request-id": {"$ref": "#/components/headers/RequestId"},
    "Server-Timing": {"$ref": "#/components/headers/ServerTiming"},
}
_WORKER: Json = {
    "x-smg-routed-worker-id": {"$ref": "#/components/headers/RoutedWorkerId"},
    "x-smg-parser": {"$ref": "#/components/headers/Parser"},
}
_ERROR_CODE: Json = {"X-SMG-Error-Code": {"$ref": "#/components/headers/ErrorCode"}}
_RETRY_AFTER: Json = {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}
PLAIN = "text/plain"

HEADERS: dict[str, Json] = {
    "RequestId": {
        "description": "The id of the request, received or made.",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    },
    "RoutedWorkerId": {
        "description": "The address of the worker that served the request.",
        "schema": {"type": "string"},
    },
    "Parser": {
        "description": "Formats of calls and of reasoning by which a chat answer was read.",
        "schema": {"type": "string"},
    },
    "Challenge": {
        "description": "Where control-plane keys are configured.",
        "schema": {"const": 'Bearer realm="control-plane"'},
    },
    "ServerTiming": {
        "description": "What took how long, in milliseconds; a stream tells what is over when it begins.",
        "schema": {"type": "string"},
    },
    "ErrorCode": {"description": "The error's code.", "schema": {"type": "string"}},
    "TypeSafeRequestId": {
        "description": "The id of the request, where System One's SDK looks for it.",
        "schema": {"type": "string"},
    },
    "RetryAfter": {
        "description": "Seconds after which to try again; absent when nobody can tell.",
        "schema": {"type": "integer", "minimum": 0},
    },
}

# Errors in the gateway's own form: name, and what happened.
_CODED = {
    403: ("Forbidden", "A key without the right."),
    404: ("NotFound", "There is no such model."),
    408: ("RequestTimeout", "The request did not arrive in time; the connection is closed."),
    409: ("Conflict", "The engine's state does not allow it."),
    413: ("ContentTooLarge", "The body has more bytes than the gateway allows."),
    424: ("FailedDependency", "A declared MCP server cannot be reached."),
    429: ("TooManyRequests", "Over a limit: of the gateway, of the caller, or of the engine."),
    431: ("RequestHeaderFieldsTooLarge", "The head is too long; the connection is closed."),
    499: ("ClientClosedRequest", "The request was cancelled before it was answered."),
    500: ("InternalServerError", "A failure of the gateway or of the engine."),
    501: ("NotImplemented", "Well formed, and not served here."),
    503: ("ServiceUnavailable", "Workers serve the model and none can take the request now."),
    504: ("GatewayTimeout", "It took longer than is allowed."),
}
# Errors in another form. 405 has a name and no operation: it is the answer to what is none.
OPERATOR_REFUSALS: Json = {
    "401": {"$ref": "#/components/responses/OperatorUnauthorized"},
    "403": {"$ref": "#/components/responses/OperatorForbidden"},
}
_NAMES = {
    400: "BadRequest",
    401: "Unauthorized",
    405: "MethodNotAllowed",
    **{status: name for status, (name, _) in _CODED.items()},
}
# What may come on any path; on one that reads a body; and from an engine, whose own status decides.
ANYWHERE = (413, 431, 500)
WITH_BODY = (400, 408)
WITH_ENGINE = (401, *sorted({*HTTP_STATUS.values()} - {400, 401}))


def schema_ref(name: str) -> Json:
    """Points to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def errors(*statuses: int) -> Json:
    """The errors of an operation, by status."""
    return {
        str(status): {"$ref": f"#/components/responses/{_NAMES[status]}"}
        for status in sorted({*statuses, *ANYWHERE})
    }


def response(description: str, content: Json, headers: Json | None = None) -> Json:
    """An answer of a handler: it always has a request id."""
    return {"description": description, "headers": {**_REQUEST_ID, **(headers or {})}, "content": content}


def json_content(*names: str) -> Json:
    """JSON of one of these schemas, with their examples."""
    refs = [schema_ref(name) for name in names]
    examples = {name: {"value": EXAMPLES[name]} for name in names}
    schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
    return {"application/json": {"schema": schema, "examples": examples}}


def text_content(*texts: str) -> Json:
    """Plain text: one of these, or any if there are none."""
    return {PLAIN: {"schema": {"type": "string", **({"enum": [*texts]} if texts else {})}}}


def generated(description: str, whole: str, chunk: str, error: str) -> Json:
    """The answer of an engine, whole or as events. A schema of an event stream describes one event."""
    data: Json = {
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [schema_ref(chunk), schema_ref(error)]},
    }
    event: Json = {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "string", "anyOf": [{"const": "[DONE]"}, data]}},
    }
    example = {"data": orjson.dumps(EXAMPLES[chunk]).decode()}
    content = {
        **json_content(whole),
        "text/event-stream": {"schema": event, "examples": {chunk: {"value": example}}},
    }
    return response(description, content, _WORKER)


def error_responses() -> dict[str, Json]:
    """Every error by name."""
    return {
        "BadRequest": response(
            "The body is not JSON, not of the request's shape, or against a rule; or the engine refuses it.",
            json_content("RequestError", "GatewayError"),
            _ERROR_CODE,
        ),
        "Unauthorized": {
            "description": "A key is missing or unknown. There is no body.",
            "headers": _REQUEST_ID,
        },
        "OperatorUnauthorized": {
            "description": "A key is missing or unknown; where control-plane keys are configured, a text says so.",
            "headers": {**_REQUEST_ID, "WWW-Authenticate": {"$ref": "#/components/headers/Challenge"}},
        },
        "OperatorForbidden": response("A control-plane key that may only look.", text_content()),
        "MethodNotAllowed": response(
            "The path has other methods; `Allow` lists them.",
            json_content("GatewayError"),
            {**_ERROR_CODE, "Allow": {"required": True, "schema": {"type": "string"}}},
        ),
        **{name: _coded(status, meaning) for status, (name, meaning) in _CODED.items()},
    }


def _coded(status: int, meaning: str) -> Json:
    headers = {**_ERROR_CODE, **(_RETRY_AFTER if status in (429, 503) else {})}
    return response(meaning, json_content("GatewayError"), headers)
