"""Reads a tokenizer directory as models are published: tokenizer.json, its config, its chat templates.

Layout: Hugging Face's. A template is looked for in chat_template.jinja, then in chat_template.json, then in
tokenizer_config.json; named ones stand in a list there or in additional_chat_templates/NAME.jinja.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_TEMPLATE = "default"
TOOL_TEMPLATE = "tool_use"
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class TokenizerDirectory:
    """What was found.

    Attributes:
        tokenizer_json: path of the tokenizer itself.
        named_tokens: bos_token and the like, by name: variables of the templates.
        eos_ids: ids that end a generation, as generation_config.json or config.json say.
        templates: Jinja source by name; DEFAULT_TEMPLATE is the one for a chat.
    """

    tokenizer_json: Path
    named_tokens: dict[str, str]
    eos_ids: frozenset[int]
    templates: dict[str, str]


def read_tokenizer_directory(directory: Path) -> TokenizerDirectory:
    """Read everything but the tokenizer.

    Raises:
        ValueError: tokenizer.json is missing, or a file is not what it should be.
    """
    tokenizer_json = directory / "tokenizer.json"
    if not tokenizer_json.is_file():
        msg = f"{directory} has no tokenizer.json"
        raise ValueError(msg)
    config = _read_json(directory / "tokenizer_config.json")
    named = _read_json(directory / "special_tokens_map.json") | config
    return TokenizerDirectory(
        tokenizer_json,
        {name: text for name in _NAMED_TOKENS if (text := _token_text(named.get(name))) is not None},
        _eos_ids(directory),
        _templates(directory, config),
    )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content: Any = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        msg = f"{path} is not valid JSON: {error}"
        raise ValueError(msg) from error
    if not isinstance(content, dict):
        msg = f"{path} must hold a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - a wrong file, not a wrong argument
    return cast("dict[str, Any]", content)


def _token_text(token: Any) -> str | None:
    if isinstance(token, dict):
        token = cast("dict[str, Any]", token).get("content")
    return token if isinstance(token, str) else None


def _eos_ids(directory: Path) -> frozenset[int]:
    for name in ("generation_config.json", "config.json"):
        ids = _read_json(directory / name).get("eos_token_id")
        if isinstance(ids, int):
            return frozenset((ids,))
        if isinstance(ids, list):
            return frozenset(token for token in cast("list[Any]", ids) if isinstance(token, int))
    return frozenset()


def _templates(directory: Path, config: dict[str, Any]) -> dict[str, str]:
    templates = _template_entries(directory / "tokenizer_config.json", config)
    processor = directory / "chat_template.json"
    templates |= _template_entries(processor, _read_json(processor))
    for path in sorted((directory / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = _read_template(path)
    single = directory / "chat_template.jinja"
    if single.is_file():
        templates[DEFAULT_TEMPLATE] = _read_template(single)
    return templates


def _template_entries(path: Path, content: dict[str, Any]) -> dict[str, str]:
    """`chat_template` of a file: one template, a list of {"name", "template"}, or an object of templates by name."""
    configured: Any = content.get("chat_template")
    if configured is None:
        return {}
    if isinstance(configured, str):
        return {DEFAULT_TEMPLATE: configured}
    entries: list[Any] = []
    if isinstance(configured, list):
        entries = cast("list[Any]", configured)
    elif isinstance(configured, dict):
        named = cast("dict[str, Any]", configured)
        entries = [{"name": name, "template": template} for name, template in named.items()]
    templates = {entry["name"]: entry["template"] for entry in entries if _is_template_entry(entry)}
    if len(templates) < len(entries) or not entries:
        msg = f"{path}: chat_template must be a text, or a list of objects with a name and a template, each once"
        raise ValueError(msg)
    return templates


def _is_template_entry(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    members = cast("dict[str, Any]", entry)
    return isinstance(members.get("name"), str) and isinstance(members.get("template"), str)


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8: {error}"
        raise ValueError(msg) from error
