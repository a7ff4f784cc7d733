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
    configured: Any = config.get("chat_template")
    templates: dict[str, str] = {}
    if isinstance(configured, str):
        templates[DEFAULT_TEMPLATE] = configured
    elif isinstance(configured, list):
        templates |= {entry["name"]: entry["template"] for entry in cast("list[dict[str, str]]", configured)}
    processor = _read_json(directory / "chat_template.json").get("chat_template")
    if isinstance(processor, str):
        templates[DEFAULT_TEMPLATE] = processor
    for path in (directory / "additional_chat_templates").glob("*.jinja"):
        templates[path.stem] = path.read_text(encoding="utf-8")
    single = directory / "chat_template.jinja"
    if single.is_file():
        templates[DEFAULT_TEMPLATE] = single.read_text(encoding="utf-8")
    return templates
