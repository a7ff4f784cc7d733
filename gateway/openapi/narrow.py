"""Narrows the JSON Schemas of shapes by rules that are checked after the shape: ranges of numbers, lengths of lists.

A member's schema is one branch or several (`anyOf`): a rule narrows the branches of its kind and leaves null alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from smg.validation.rules import Range

    Json = dict[str, Any]

_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems")


def narrow_number(schema: Json, allowed: Range) -> None:
    """Allow in a member what a range allows.

    Raises:
        LookupError: the member takes no number.
    """
    numbers = [branch for branch in _branches(schema) if branch.get("type") in ("integer", "number")]
    if not numbers:
        raise LookupError(f"a range, {allowed}, for a member that takes no number: {schema}")
    for branch in numbers:
        _narrow(branch, _bounds(allowed))
        if allowed.also is not None:
            # The exception stands beside the range, inside the branch, so that the branch stays one.
            bounded = {key: branch.pop(key) for key in [*branch] if key != "type"}
            branch["anyOf"] = [{"const": allowed.also}, bounded]


def narrow_member(schema: Json, kinds: Mapping[str, Json]) -> None:
    """Add keywords to the branches of a member, by kind: "string", "object", "array of integer", "any".

    Raises:
        LookupError: the member has no branch of a kind.
    """
    branches = {_kind(branch): branch for branch in _branches(schema)}
    for kind, keywords in kinds.items():
        if kind not in branches:
            raise LookupError(f"a rule for {kind}, for a member that takes {', '.join(branches)}")
        _narrow(branches[kind], keywords)


def _branches(schema: Json) -> Iterator[Json]:
    yield from schema.get("anyOf", (schema,))


def _kind(branch: Json) -> str:
    kind = branch.get("type", "any")
    return f"array of {branch['items'].get('type', 'object')}" if kind == "array" else kind


def _bounds(allowed: Range) -> Json:
    bounds: Json = {}
    if allowed.low != -math.inf:
        bounds["exclusiveMinimum" if allowed.above else "minimum"] = allowed.low
    if allowed.high != math.inf:
        bounds["maximum"] = allowed.high
    return bounds


def _narrow(branch: Json, keywords: Mapping[str, Any]) -> None:
    """Of two bounds the narrower one counts."""
    for keyword, value in keywords.items():
        known = branch.get(keyword)
        if isinstance(known, dict):
            _narrow(cast("Json", known), value)
        elif isinstance(known, int | float):
            branch[keyword] = max(known, value) if keyword in _LEAST else min(known, value)
        else:
            branch[keyword] = value
