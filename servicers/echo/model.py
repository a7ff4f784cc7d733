"""One model of the echo engine: a tokenizer directory, and the card that describes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tokenizers import Tokenizer

from servicers.base import CannotStart
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EMBEDDING_SIZE = 32
EMBEDDING_DIMENSIONS = (8, 16)
EMBEDDING_LAYERS = (1, 2, 3)
LABELS = ("negative", "neutral", "positive")
CONSTRAINTS = ("json_schema", "regex", "ebnf", "lark", "structural_tag")
# Either of them says how a model's images are processed.
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
# Where no file tells the model's end token.
_USUAL_EOS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>", "</s>")


@dataclass(frozen=True, slots=True)
class EchoModel:
    """A served model.

    Attributes:
        id: name that clients ask for.
        directory: where the tokenizer files lie.
        tokenizer: the tokenizer.
        vocab_size: number of token ids.
        context_length: longest prompt plus output; 0 when nothing says it.
        eos_ids: ids that end a sequence; at least one.
        config: the merged config files.
    """

    id: str
    directory: Path
    tokenizer: Tokenizer
    vocab_size: int
    context_length: int
    eos_ids: tuple[int, ...]
    config: Mapping[str, Any]

    @property
    def takes_images(self) -> bool:
        """The model comes with a processor for images."""
        return any((self.directory / name).is_file() for name in PROCESSOR_FILES)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, special tokens spelled in it included."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids, special tokens included."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def card(self) -> card_pb2.ModelCard:
        """The model's card, without the tokenizer's fingerprint."""
        config = self.config
        architectures: list[str] = config.get("architectures") or [""]
        card = card_pb2.ModelCard(
            id=self.id,
            path=str(self.directory),
            context_length=self.context_length,
            vocab_size=self.vocab_size,
            eos_token_ids=self.eos_ids,
            architecture=architectures[0],
            model_type=config.get("model_type") or "",
            embedding_size=EMBEDDING_SIZE,
            embedding_dimensions=EMBEDDING_DIMENSIONS,
            embedding_layers=EMBEDDING_LAYERS,
            embedding_form="counts, normalized",
            classify_kind=card_pb2.CLASSIFY_KIND_EXCLUSIVE,
            labels=LABELS,
            dtype="float64",
            device="none",
            is_exact=True,
            capabilities=card_pb2.Capabilities(
                generate=True,
                score=True,
                embed=True,
                classify=True,
                prompt_logprobs=True,
                constraints=CONSTRAINTS,
                cache_events=True,
                modalities=("image",) if self.takes_images else (),
            ),
        )
        for name in ("bos_token_id", "pad_token_id"):
            if isinstance(config.get(name), int):
                setattr(card, name, config[name])
        return card


def load_model(path: str, model_id: str | None, max_context: int | None) -> EchoModel:
    """Load a tokenizer directory. Blocks.

    Args:
        path: the directory, or its tokenizer.json.
        model_id: name to serve it under; None: the directory's.
        max_context: longest prompt plus output; None: what the files say.

    Raises:
        CannotStart: there is no tokenizer that can be loaded.
    """
    directory = Path(path)
    directory = directory.parent if directory.is_file() else directory
    file = directory / "tokenizer.json"
    if not file.is_file():
        raise CannotStart(
            f"--model-path {path!r} has no tokenizer.json; the echo engine needs a tokenizer directory"
        )
    try:
        # The library's errors are bare Exceptions.
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:
        raise CannotStart(f"{file} is not a tokenizer that can be loaded: {error}") from error
    config = _read_json(directory / "config.json")
    tokenizer_config = _read_json(directory / "tokenizer_config.json")
    generation_config = _read_json(directory / "generation_config.json")
    return EchoModel(
        id=model_id or directory.resolve().name,
        directory=directory,
        tokenizer=tokenizer,
        vocab_size=max(tokenizer.get_vocab_size(), _number(config.get("vocab_size")) or 0),
        context_length=max_context
        or _number(config.get("max_position_embeddings"))
        or _number(tokenizer_config.get("model_max_length"))
        or 0,
        eos_ids=_eos_ids(tokenizer, (generation_config, config), tokenizer_config),
        config={**config, **generation_config},
    )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CannotStart(f"{path} is not JSON: {error}") from error
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    # Some tokenizer configs say 1e30 for "no limit".
    return value if isinstance(value, int) and 0 < value < 2**31 else None


def _eos_ids(
    tokenizer: Tokenizer, configs: Iterable[Mapping[str, Any]], tokenizer_config: Mapping[str, Any]
) -> tuple[int, ...]:
    """End tokens: generation_config.json, else config.json, else tokenizer_config.json, else a usual one."""
    for config in configs:
        value = config.get("eos_token_id")
        ids = cast("list[object]", value) if isinstance(value, list) else [value]
        found = tuple(each for each in ids if isinstance(each, int))
        if found:
            return found
    named = tokenizer_config.get("eos_token")
    name = cast("dict[str, Any]", named).get("content") if isinstance(named, dict) else named
    for text in (name, *_USUAL_EOS):
        token = tokenizer.token_to_id(text) if isinstance(text, str) else None
        if token is not None:
            return (token,)
    raise CannotStart("no file of the model says which token ends a sequence (eos_token_id in config.json)")
