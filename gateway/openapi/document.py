"""Puts the document together, once. Format: OpenAPI 3.1.1 with JSON Schema 2020-12."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

import orjson

from gateway.openapi.answers import ADAPTERS
from gateway.openapi.decision_operations import decision_schemas
from gateway.openapi.encode_operations import encode_schemas
from gateway.openapi.operations import PARAMETERS, SECURITY_SCHEMES, TAGS, paths
from gateway.openapi.requests import request_schemas, shape_schema
from gateway.openapi.responses import HEADERS, error_responses

Json = dict[str, Any]

_DESCRIPTION = """\
The OpenAI-compatible API of this gateway. It describes what this release serves.

A path that takes GET takes HEAD as well. Every other method is answered with 405 (`MethodNotAllowed` below), every
other path with 404 and the code `unknown_url`.
"""


@cache
def document_bytes() -> bytes:
    """The document as JSON."""
    return orjson.dumps(document())


@cache
def document_yaml() -> bytes:
    """The document as YAML."""
    import yaml

    return yaml.safe_dump(document(), sort_keys=False, allow_unicode=True).encode()


def document() -> Json:
    """The document as plain values."""
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "SMG",
            "version": version("smg"),
            "description": _DESCRIPTION,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": TAGS,
        "paths": paths(),
        "components": {
            "schemas": _schemas(),
            "responses": error_responses(),
            "headers": HEADERS,
            "parameters": PARAMETERS,
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def _schemas() -> Json:
    schemas: Json = {}
    for name, adapter in ADAPTERS.items():
        schema, inside = shape_schema(adapter)
        schemas |= {**inside, name: schema}
    requests = request_schemas()
    if twice := schemas.keys() & requests.keys():
        raise ValueError(f"names of requests and of answers: {', '.join(twice)}")
    return {**requests, **schemas, **decision_schemas(), **encode_schemas()}
