"""A small network with random weights, on disk: for what does not depend on the answers, and would be slow on a real one."""

from __future__ import annotations

import dataclasses
import json
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_WEIGHTS = "model.safetensors"


def write_checkpoint(tokenizer_dir: Path) -> Path:
    """Write a model beside a tokenizer's directory, with a copy of that tokenizer, once. Returns the model's directory."""
    from safetensors.torch import save_file

    from servicers.local.config import config_to_hf
    from tests.unit.servicers.local.tiny_model import TINY, random_weights

    target = tokenizer_dir.with_name(f"{tokenizer_dir.name}-weights")
    if (target / _WEIGHTS).exists():
        return target
    shutil.copytree(tokenizer_dir, target)
    plain = json.loads((tokenizer_dir / "config.json").read_text())
    config = dataclasses.replace(
        TINY,
        vocab_size=plain["vocab_size"],
        context_tokens=1024,
        eos_token_ids=(plain["eos_token_id"],),
        bos_token_id=plain["bos_token_id"],
    )
    (target / "config.json").write_text(json.dumps(plain | config_to_hf(config)))
    save_file(random_weights(config), target / _WEIGHTS)
    return target
