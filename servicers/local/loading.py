"""Loads a model and puts the parts of an engine together. Blocks for seconds; runs in the compute thread."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from servicers.local.attention import Segment
from servicers.local.checkpoint import find_default_model, read_checkpoint
from servicers.local.config import ModelFileError, config_to_hf
from servicers.local.grammar import KINDS, GrammarCompiler, GrammarPool
from servicers.local.jobs import JobMaker
from servicers.local.model import load_model
from servicers.local.settings import DEFAULT_MODEL_ID
from servicers.local.stepper import Stepper
from servicers.local.tokenizer_files import tokenizer_directory
from servicers.local.vision import MODALITIES, Eyes
from servicers.sampling_defaults import PACKAGED, sampling_defaults
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from servicers.local.kv_cache import KVCache
    from servicers.local.model import Model
    from servicers.local.settings import LocalSettings

logger = logging.getLogger(__name__)

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
FEWEST_SLOTS = 4
_WARM_UP_TOKENS = 64
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedEngine:
    """A stepper and what there is to say about its model."""

    stepper: Stepper
    description: card_pb2.DescribeResponse
    tokenizer_dir: Path | None
    grammars: GrammarPool | None
    eyes: Eyes | None = None


def load_engine(settings: LocalSettings, call_later: Callable[[Callable[[], None]], None]) -> LoadedEngine:
    """Load everything.

    Args:
        settings: what to load.
        call_later: as Stepper's.

    Raises:
        ModelFileError: there is no model, or not one that can be served.
    """
    path = settings.model_path or find_default_model()
    dtype = DTYPES.get(settings.dtype)
    if dtype is None:
        raise ModelFileError(f"dtype {settings.dtype!r} is not served; known: {', '.join(DTYPES)}")
    if settings.device != "cpu" and not torch.cuda.is_available():
        raise ModelFileError(f"device {settings.device!r} is not there: torch finds no CUDA device")
    model = load_model(path, dtype=dtype, device=settings.device, threads=settings.threads)
    context = min(model.config.context_tokens, settings.max_context or model.config.context_tokens)
    slots = settings.max_running or _slots_that_fit(model, context, settings)
    memory = model.new_cache(slots, context)
    eyes = Eyes(path, dtype=dtype, device=settings.device) if read_checkpoint(path).sees else None
    _warm_up(model, memory)
    tokenizer_dir = _find_tokenizer(path, settings)
    grammars = _make_grammars(model, tokenizer_dir, settings)
    defaults = PACKAGED if settings.model_path is None else sampling_defaults(path)
    maker = JobMaker(
        defaults=defaults,
        context_tokens=context,
        eos_token_ids=model.config.eos_token_ids,
        embedding_size=model.config.hidden_size,
    )
    stepper = Stepper(
        model,
        memory,
        maker,
        grammars,
        eyes,
        step_tokens=settings.step_tokens,
        max_waiting=settings.max_waiting,
        call_later=call_later,
    )
    card = _card(model, path, context, settings, has_grammars=grammars is not None)
    card.defaults.CopyFrom(defaults)
    card.capabilities.modalities.extend(MODALITIES if eyes is not None else ())
    description = card_pb2.DescribeResponse(models=[card], engine="local", max_running=slots)
    return LoadedEngine(stepper, description, tokenizer_dir, grammars, eyes)


def _slots_that_fit(model: Model, context: int, settings: LocalSettings) -> int:
    config = model.config
    per_token = config.layers * 2 * config.kv_heads * config.head_dim * model.precision.cache.itemsize
    budget = settings.memory_share * _memory_bytes(model.device)
    slots = max(FEWEST_SLOTS, min(settings.most_slots, int(budget / (per_token * context))))
    logger.info("%d slots of %d tokens, at most %.1f GB", slots, context, slots * per_token * context / 1e9)
    return slots


def _memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(memory, int(_CGROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        # No limit of a container: the file is missing or says "max".
        return memory


def _warm_up(model: Model, memory: KVCache) -> None:
    """Run each kind of product once, so that the first request does not pay for choosing kernels."""
    ids, positions = torch.zeros(_WARM_UP_TOKENS, dtype=torch.int64), torch.arange(_WARM_UP_TOKENS)
    count = min(_WARM_UP_TOKENS, memory.slot_tokens)
    hidden = model.forward(ids[:count], positions[:count], [Segment(0, 0, count, 0)], memory)
    model.logits(hidden[-1:])
    model.forward(ids[:1], positions[:1], [Segment(0, 0, 1, 0)], memory)


def _find_tokenizer(path: Path, settings: LocalSettings) -> Path | None:
    try:
        cache = settings.tokenizer_cache or Path.home() / ".cache" / "smg" / "tokenizers"
        return tokenizer_directory(path, cache)
    except (ModelFileError, OSError, RuntimeError) as error:
        logger.warning("the model is served without tokenizer files and constraints: %s", error)
        return None


def _make_grammars(model: Model, tokenizer_dir: Path | None, settings: LocalSettings) -> GrammarPool | None:
    if tokenizer_dir is None:
        return None
    text = (tokenizer_dir / "tokenizer.json").read_text(encoding="utf-8")
    try:
        compiler = GrammarCompiler(
            text,
            vocab_size=model.config.vocab_size,
            eos_token_ids=model.config.eos_token_ids,
            capacity=settings.kept_grammars,
        )
    except ValueError as error:
        logger.warning("constraints are not served, llguidance does not take the tokenizer: %s", error)
        return None
    return GrammarPool(compiler)


def _card(
    model: Model, path: Path, context: int, settings: LocalSettings, *, has_grammars: bool
) -> card_pb2.ModelCard:
    config = model.config
    in_files = config_to_hf(config)
    default_id = path.stem if path.is_file() else path.resolve().name
    return card_pb2.ModelCard(
        id=settings.model_id or (DEFAULT_MODEL_ID if settings.model_path is None else default_id),
        path=str(path),
        context_length=context,
        vocab_size=config.vocab_size,
        eos_token_ids=config.eos_token_ids,
        bos_token_id=config.bos_token_id,
        architecture=in_files["architectures"][0],
        model_type=in_files["model_type"],
        capabilities=card_pb2.Capabilities(
            generate=True,
            score=True,
            embed=True,
            prompt_logprobs=True,
            constraints=KINDS if has_grammars else (),
            cache_events=True,
        ),
        embedding_size=config.hidden_size,
        dtype=str(model.precision.activations).removeprefix("torch."),
        device=model.device.type,
    )
