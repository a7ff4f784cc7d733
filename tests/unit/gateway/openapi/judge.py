"""Judges values by the document's schemas."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from jsonschema_rs import Draft202012Validator

from gateway.openapi.document import document


@cache
def plain_document() -> dict[str, Any]:
    """The document; do not change it."""
    return document()


def judge(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Draft202012Validator:
    """A validator for a schema of the document."""
    components = (root or plain_document())["components"]
    return Draft202012Validator({**schema, "components": components})


@cache
def named(name: str) -> Draft202012Validator:
    """A validator for a named schema of the document."""
    return judge({"$ref": f"#/components/schemas/{name}"})


@cache
def closed_document() -> dict[str, Any]:
    """The document, in which no object may have members that do not stand there."""
    closed = copy.deepcopy(plain_document())
    for schema in closed["components"]["schemas"].values():
        _close(schema)
    return closed


@cache
def closed(name: str) -> Draft202012Validator:
    """A validator for a named schema that allows no other members."""
    return judge({"$ref": f"#/components/schemas/{name}"}, closed_document())


def _close(schema: Any) -> None:
    if isinstance(schema, list):
        for item in schema:
            _close(item)
    elif isinstance(schema, dict):
        # Those without a type are conditions.
        if isinstance(schema.get("properties"), dict) and "type" in schema:
            schema["additionalProperties"] = False
        for item in schema.values():
            _close(item)
