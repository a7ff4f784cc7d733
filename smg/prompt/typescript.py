"""Writes a JSON Schema as the TypeScript-like type that gpt-oss models read.

The text is byte for byte what OpenAI's library openai-harmony 0.0.8 writes, its oddities included (whole numbers are
numbers, anyOf is any, a second line of a description has no comment mark): models were trained on that.
"""

from __future__ import annotations

import json
from typing import Any, cast

# Deeper schemas are `any`: nobody reads them, and they must not exhaust the stack.
MAX_DEPTH = 64
_STEP, _VARIANT_STEP = "    ", "   "
_NAMES = {"number": "number", "integer": "number", "boolean": "boolean"}


def type_of(schema: Any, indent: str = "", depth: int = 0) -> str:
    """The type.

    Args:
        schema: any JSON; what is no schema is `any`.
        indent: what stands before each line but the first.
        depth: how many schemas stand around it.
    """
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return "any"
    members = cast("dict[str, Any]", schema)
    variants: Any = members.get("oneOf")
    if isinstance(variants, list):
        return "".join(
            f"\n{indent} | {_variant(each, indent, depth)}{_remark(each, each)}"
            for each in cast("list[Any]", variants)
        )
    kind: Any = members.get("type")
    if isinstance(kind, list):
        names = ["number" if each == "integer" else each for each in cast("list[Any]", kind)]
        return " | ".join(name for name in names if isinstance(name, str)) or "any"
    if kind == "object":
        return _object(members, indent, depth)
    if kind == "array":
        if "items" in members:
            return type_of(members["items"], indent, depth + 1) + "[]"
        return "Array<any>"
    if kind == "string":
        choices: Any = members.get("enum")
        texts = (
            [each for each in cast("list[Any]", choices) if isinstance(each, str)]
            if _is_list(choices)
            else []
        )
        return " | ".join(f'"{text}"' for text in texts) or "string"
    return _NAMES.get(kind, "any") if isinstance(kind, str) else "any"


def _object(schema: dict[str, Any], indent: str, depth: int) -> str:
    description = schema.get("description")
    lines = [f"{indent}// {description}\n{{\n" if isinstance(description, str) else "{\n"]
    properties: Any = schema.get("properties")
    if isinstance(properties, dict):
        required: Any = schema.get("required")
        needed = set(filter(_is_text, cast("list[Any]", required))) if _is_list(required) else set[Any]()
        for key, value in cast("dict[str, Any]", properties).items():
            members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            name = key if key in needed else f"{key}?"
            lines += [indent + line + "\n" for line in _property(name, value, members, indent, depth)]
    return "".join(lines) + indent + "}"


def _property(name: str, value: Any, members: dict[str, Any], indent: str, depth: int) -> list[str]:
    lines: list[str] = []
    title, description = members.get("title"), members.get("description")
    if _is_text(title):
        lines += [f"// {title}", "//"]
    variants: Any = members.get("oneOf")
    is_union = _is_list(variants)
    if _is_text(description) and not is_union:
        lines.append(f"// {description}")
    examples: Any = members.get("examples")
    if _is_list(examples) and examples:
        lines.append("// Examples:")
        lines += [f'// - "{each}"' for each in cast("list[Any]", examples) if _is_text(each)]
    if is_union:
        return [*lines, *_union(name, members, cast("list[Any]", variants), indent, depth)]
    written = type_of(value, indent + _STEP, depth + 1) + _null(members)
    default = f" // {_default(members)}" if "default" in members else ""
    return [*lines, f"{name}: {written},{default}"]


def _union(name: str, members: dict[str, Any], variants: list[Any], indent: str, depth: int) -> list[str]:
    lines: list[str] = []
    description = members.get("description")
    is_told = _is_text(description)
    if is_told and description != (_described(variants[0]) if variants else None):
        lines.append(f"// {description}")
    if "default" in members:
        lines.append(f"// {_default(members)}")
    lines.append(f"{name}:")
    for number, variant in enumerate(variants):
        # What the property says is not said again.
        is_said = is_told and (number == 0 or _described(variant) == description)
        remark = _remark(variant, {} if is_said else variant)
        lines.append(f" | {_variant(variant, indent, depth)}{remark}")
    return [*lines, ","]


def _variant(variant: Any, indent: str, depth: int) -> str:
    written = type_of(variant, indent + _VARIANT_STEP, depth + 1)
    return written + (_null(cast("dict[str, Any]", variant)) if isinstance(variant, dict) else "")


def _remark(variant: Any, describing: Any) -> str:
    """What stands behind a variant."""
    told = [text for text in (_described(describing),) if text is not None]
    if isinstance(variant, dict) and "default" in variant:
        told.append(_default(cast("dict[str, Any]", variant)))
    return f" // {' '.join(told)}" if told else ""


def _described(schema: Any) -> str | None:
    text = cast("dict[str, Any]", schema).get("description") if isinstance(schema, dict) else None
    return text if isinstance(text, str) else None


def _null(schema: dict[str, Any]) -> str:
    kind: Any = schema.get("type")
    is_said = _is_list(kind) and "null" in kind
    return " | null" if schema.get("nullable") is True and not is_said else ""


def _default(schema: dict[str, Any]) -> str:
    value = schema["default"]
    if isinstance(value, str):
        return f"default: {value}" if "enum" in schema else f'default: "{value}"'
    return f"default: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)
