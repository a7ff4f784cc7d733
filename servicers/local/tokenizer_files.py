"""Turns the tokenizer inside a GGUF file into the files that everybody else reads: tokenizer.json and its company.

Byte-level BPE only. Which texts are cut before merging is decided by the file's `tokenizer.ggml.pre`; a wrong choice
gives plausible but wrong ids, so an unknown name is refused. Patterns: `llama_vocab` in
github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp, which equal the models' own tokenizer.json.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servicers.local.checkpoint import read_checkpoint
from servicers.local.config import ModelConfig, ModelFileError, config_to_hf
from servicers.local.gguf import GgufFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenizers import Tokenizer

KEPT_DIRECTORIES = 8
"""Directories of other models that stay in the cache; the least recently made go first."""
FORMAT = "1"
"""Part of the cache key: another value makes every directory anew."""

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_GPT2_KIND = "gpt2"

_LLAMA3_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_PATTERN = _LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Cutting:
    """How text is cut into the pieces inside which tokens merge."""

    pattern: str | None
    """None: the pattern of GPT-2, which is built into the byte-level step."""
    single_digits: bool = False
    nfc: bool = False
    whole_words_first: bool = False
    """A piece that is a token as a whole is taken as such, whatever the merges say."""


CUTTINGS = {
    "gpt-2": _Cutting(None),
    "smollm": _Cutting(None, single_digits=True),
    "llama-bpe": _Cutting(_LLAMA3_PATTERN, whole_words_first=True),
    "qwen2": _Cutting(_QWEN2_PATTERN, nfc=True),
}
_SAME = {"gpt2": "gpt-2", "default": "gpt-2", "llama3": "llama-bpe", "llama-v3": "llama-bpe"}


def tokenizer_directory(model: Path, cache_dir: Path) -> Path:
    """A directory with tokenizer.json, tokenizer_config.json, config.json and generation_config.json of a model.

    Args:
        model: a GGUF file, or a directory of safetensors, which is itself the answer.
        cache_dir: where directories made from GGUF files are kept, at most KEPT_DIRECTORIES. It may be shared by
            processes; it is made when missing.

    Raises:
        ModelFileError: no tokenizer, or of a kind not supported.
    """
    if model.is_dir():
        if not (model / "tokenizer.json").exists():
            raise ModelFileError(f"{model} has no tokenizer.json; only fast tokenizers are supported")
        return model
    target = cache_dir / _key(model)
    if not target.is_dir():
        cache_dir.mkdir(parents=True, exist_ok=True)
        _write_whole(model, target)
        _forget_old(cache_dir, keep=target)
    return target


def _key(model: Path) -> str:
    try:
        stat = model.stat()
    except OSError as error:
        raise ModelFileError(f"cannot read {model}: {error}") from error
    identity = f"{FORMAT}\n{model.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}"
    return f"tokenizer-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"


def _write_whole(model: Path, target: Path) -> None:
    """Write beside the target, then rename: nobody ever sees half a directory."""
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=target.parent))
    try:
        write_tokenizer_files(model, draft)
        draft.chmod(0o755)
        draft.replace(target)
    except OSError:
        # Another process was first; its directory says the same.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _forget_old(cache_dir: Path, *, keep: Path) -> None:
    made = [folder for folder in cache_dir.glob("tokenizer-*") if folder != keep]
    made.sort(key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    for folder in made[KEPT_DIRECTORIES - 1 :]:
        shutil.rmtree(folder, ignore_errors=True)


def write_tokenizer_files(model: Path, folder: Path) -> None:
    """Write the four files of a GGUF model into an existing folder."""
    metadata = GgufFile(model).metadata
    config = read_checkpoint(model).config
    build_tokenizer(metadata).save(str(folder / "tokenizer.json"))
    files = {
        "tokenizer_config.json": _tokenizer_config(metadata, config),
        "config.json": config_to_hf(config),
        "generation_config.json": _generation_config(metadata, config),
    }
    for name, content in files.items():
        (folder / name).write_text(
            json.dumps(content, ensure_ascii=False, indent=2) + os.linesep, encoding="utf-8"
        )


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that GGUF metadata describes.

    Raises:
        ModelFileError: parts are missing, or a kind not supported.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, processors

    cutting = _cutting(metadata)
    tokens, merges = _need(metadata, "tokens"), _need(metadata, "merges")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    try:
        bpe = models.BPE(vocabulary, pairs, ignore_merges=cutting.whole_words_first, fuse_unk=False)
    except Exception as error:  # the binding raises nothing narrower
        raise ModelFileError(f"the GGUF tokenizer's merges do not fit its tokens: {error}") from error
    tokenizer = Tokenizer(bpe)
    _set_cutting(tokenizer, cutting)
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata.get("tokenizer.ggml.token_type")
    for number, kind in enumerate(() if kinds is None else kinds.tolist()):
        if kind in (_UNKNOWN, _CONTROL):
            tokenizer.add_special_tokens([AddedToken(tokens[number], special=True, normalized=False)])
        elif kind == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(tokens[number], special=False, normalized=False)])
    bos = _token(metadata, "bos")
    if metadata.get("tokenizer.ggml.add_bos_token") and bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, vocabulary[bos])]
        )
    return tokenizer


def _cutting(metadata: Mapping[str, Any]) -> _Cutting:
    kind = _need(metadata, "model")
    if kind != _GPT2_KIND:
        raise ModelFileError(f"unknown GGUF tokenizer {kind!r}; supported: {_GPT2_KIND} (byte-level BPE)")
    name = str(metadata.get("tokenizer.ggml.pre", "default"))
    cutting = CUTTINGS.get(_SAME.get(name, name))
    if cutting is None:
        raise ModelFileError(f"unknown GGUF pre-tokenizer {name!r}; supported: {', '.join(CUTTINGS)}")
    return cutting


def _set_cutting(tokenizer: Tokenizer, cutting: _Cutting) -> None:
    from tokenizers import Regex, normalizers, pre_tokenizers

    steps: list[Any] = []
    if cutting.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if cutting.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(cutting.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cutting.pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    if cutting.nfc:
        tokenizer.normalizer = normalizers.NFC()


def _need(metadata: Mapping[str, Any], key: str) -> Any:
    value = metadata.get(f"tokenizer.ggml.{key}")
    if value is None:
        raise ModelFileError(f"the GGUF file has no key tokenizer.ggml.{key}")
    return value


def _token(metadata: Mapping[str, Any], role: str) -> str | None:
    """The token that has a role: bos, eos, unknown, padding."""
    number, tokens = metadata.get(f"tokenizer.ggml.{role}_token_id"), _need(metadata, "tokens")
    if number is None:
        return None
    if not 0 <= number < len(tokens):
        raise ModelFileError(f"tokenizer.ggml.{role}_token_id is {number}; there are {len(tokens)} tokens")
    return tokens[number]


def _tokenizer_config(metadata: Mapping[str, Any], config: ModelConfig) -> dict[str, Any]:
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    content: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.context_tokens,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
    }
    content.update(
        {name: token for name, role in roles.items() if (token := _token(metadata, role)) is not None}
    )
    template = metadata.get("tokenizer.chat_template")
    if template is not None:
        content["chat_template"] = template
    return content


def _generation_config(metadata: Mapping[str, Any], config: ModelConfig) -> dict[str, Any]:
    content: dict[str, Any] = {"eos_token_id": list(config.eos_token_ids)}
    if config.bos_token_id is not None:
        content["bos_token_id"] = config.bos_token_id
    pad = metadata.get("tokenizer.ggml.padding_token_id")
    if pad is not None:
        content["pad_token_id"] = pad
    return content
