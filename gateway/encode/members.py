"""Reads the members that the bodies of these paths have in common. A fault names the member, its value and what is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gateway.openai.explain import shown
from smg.errors import MalformedRequest
from smg.validation.encode import refused
from smg_proto.embedding.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

HIGHEST = 2**32 - 1
_OVERFLOWS = {
    "reject": common_pb2.OVERFLOW_REJECT,
    "truncate": common_pb2.OVERFLOW_TRUNCATE,
    "window": common_pb2.OVERFLOW_WINDOW,
}
_OPTIONS = ("overflow", "max_tokens", "window", "deadline_ms", "return_meta")
_WINDOW = ("tokens", "overlap")


def text_of(members: Mapping[str, Any], name: str, default: str = "") -> str:
    """A text; the default where it is missing or null."""
    value = members.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise MalformedRequest(f"{name} is {shown(value)}; it must be a string", param=name)
    return value


def count_of(members: Mapping[str, Any], name: str, path: str = "", *, least: int = 1) -> int | None:
    """A whole number; None where it is missing or null."""
    value = members.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= HIGHEST:
        where = path + name
        raise refused(
            f"{where} is {shown(value)}; it must be a whole number from {least} to {HIGHEST}", where
        )
    return value


def flag_of(members: Mapping[str, Any], name: str, path: str = "") -> bool:
    """True or false; false where it is missing or null."""
    value = members.get(name)
    if value is not None and not isinstance(value, bool):
        raise refused(f"{path}{name} is {shown(value)}; it must be true or false", path + name)
    return bool(value)


def options_of(members: Mapping[str, Any]) -> common_pb2.EncodeOptions:
    """The member `options`."""
    given = _object(members.get("options"), "options", _OPTIONS)
    overflow = given.get("overflow")
    if overflow is not None and (not isinstance(overflow, str) or overflow not in _OVERFLOWS):
        raise refused(
            f"options.overflow is {shown(overflow)}; allowed: {', '.join(_OVERFLOWS)}", "options.overflow"
        )
    window = _object(given.get("window"), "options.window", _WINDOW)
    return common_pb2.EncodeOptions(
        overflow=_OVERFLOWS[overflow] if overflow else common_pb2.OVERFLOW_UNSPECIFIED,
        max_tokens=count_of(given, "max_tokens", "options."),
        window_tokens=count_of(window, "tokens", "options.window."),
        window_overlap=count_of(window, "overlap", "options.window.", least=0),
        deadline_ms=count_of(given, "deadline_ms", "options."),
        return_meta=flag_of(given, "return_meta", "options."),
    )


def _object(value: Any, name: str, known: tuple[str, ...]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise refused(f"{name} is {shown(value)}; it must be an object", name)
    given = cast("dict[str, Any]", value)
    unknown = next((each for each in given if each not in known), None)
    if unknown is not None:
        raise refused(f"{name} has {unknown[:60]!r}; allowed: {', '.join(known)}", f"{name}.{unknown[:60]}")
    return given


def usage_json(usage: common_pb2.EncodeUsage) -> dict[str, Any]:
    """Usage as it is written."""
    told: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": 0,
        "total_tokens": usage.prompt_tokens,
    }
    if usage.tokens_lower_bound:
        told["tokens_lower_bound"] = True
    return told


def meta_json(meta: common_pb2.EncodeMeta, timings: Mapping[str, float]) -> dict[str, Any]:
    """Meta as it is written."""
    told: dict[str, Any] = {field.name: getattr(meta, field.name) for field in meta.DESCRIPTOR.fields}
    if not told["representation"]:
        del told["representation"]
    return {**told, "timings": dict(timings)}
