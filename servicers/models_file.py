"""Reads the file of --models-file: the models that one process serves, YAML or JSON.

    models: [{path: /models/chat, id: chat}, {path: default-embedder}, {path: /models/e, dimensions: [128, 256]}]

A path is a directory, a GGUF file, "default" or "default-embedder". For encoders an entry may declare what the model's
own files do not say: dimensions, layers, pooling, normalize.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

from servicers.base import CannotStart

_DECLARED = ("dimensions", "layers", "pooling", "normalize")
_KNOWN = ("path", "id", *_DECLARED)


class ModelEntry(NamedTuple):
    """One model.

    Attributes:
        path: where it is.
        id: name that clients ask for; empty for one by the path.
        declared: what its own files do not say.
    """

    path: str
    id: str
    declared: dict[str, Any]


def read_models_file(file: str) -> list[ModelEntry]:
    """Read it.

    Raises:
        CannotStart: it cannot be read, or an entry is wrong; the message says which.
    """
    import yaml

    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CannotStart(f"cannot read the models file {file}: {error}") from error
    entries = cast("dict[str, Any]", content).get("models") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise CannotStart(f"the models file {file} has no list `models` with at least one entry")
    return [_entry(file, number, entry) for number, entry in enumerate(cast("list[Any]", entries))]


def _entry(file: str, number: int, entry: Any) -> ModelEntry:
    where = f"models[{number}] of {file}"
    if not isinstance(entry, dict):
        raise CannotStart(f"{where} is {entry!r}; it must be an object with at least a path")
    fields = cast("dict[str, Any]", entry)
    unknown = [str(name) for name in fields if name not in _KNOWN]
    if unknown:
        raise CannotStart(f"{where} has {', '.join(unknown)}; known: {', '.join(_KNOWN)}")
    path, name = fields.get("path"), fields.get("id", "")
    if not isinstance(path, str) or not path:
        raise CannotStart(f"{where} has the path {path!r}; it must be a text")
    if not isinstance(name, str):
        raise CannotStart(f"{where} has the id {name!r}; it must be a text")
    return ModelEntry(path, name, {each: fields[each] for each in _DECLARED if each in fields})
