"""The numbers that the engine runs with."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_MODEL_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Everything that can be set."""

    model_path: Path | None = None
    """A GGUF file or a directory of safetensors; None: the model that a package ships."""
    model_id: str | None = None
    """Name that clients ask for; None: the default model's own name, else that of the file or directory."""
    max_context: int | None = None
    """Longest prompt plus output in tokens; None: the model's own. Never more than the model's own."""
    device: str = "cpu"
    dtype: str = "bf16"
    """"bf16" or "fp32"."""
    threads: int | None = None
    """Of torch; None: its own choice."""
    max_running: int | None = None
    """Most sequences computed at a time; None: as many as `memory_share` allows, at most `most_slots`."""
    most_slots: int = 64
    memory_share: float = 0.4
    """Part of the device's memory that keys and values may come to take."""
    max_waiting: int = 1024
    """Most sequences that wait to be computed; more are refused."""
    step_tokens: int = 256
    """Tokens of one step, about: what a step computes of prompts while sequences wait for their next token."""
    kept_grammars: int = 64
    """Most compiled constraints that are kept."""
    tokenizer_cache: Path | None = None
    """Where tokenizer files made from a GGUF file are kept; None: the user's cache directory."""
