"""Turns generation_config.json into the sampling values that a model uses where a request says nothing.

Format: Hugging Face's GenerationConfig. Values that are out of range are left out: a model must not refuse every
request for a slip in its files.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, cast

from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

# What the packaged model's own description samples with; at temperature 1 a model so small wanders off.
PACKAGED = card_pb2.Sampling(temperature=0.2, top_p=0.9)

_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (1e-6, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (1e-6, 2.0),
}


def sampling_defaults(model: Path) -> card_pb2.Sampling:
    """The defaults of a model directory; empty for a single file, and for files that name none."""
    path = model / "generation_config.json"
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return card_pb2.Sampling()
    if not isinstance(content, dict):
        return card_pb2.Sampling()
    values = cast("dict[str, Any]", content)
    defaults = card_pb2.Sampling()
    for name, (low, high) in _RANGES.items():
        value = values.get(name)
        if isinstance(value, int | float) and low <= value <= high:
            setattr(defaults, name, value)
        elif value is not None:
            logger.warning("%s: %s is %r and is not used", path, name, value)
    top_k = values.get("top_k")
    if isinstance(top_k, int) and top_k >= 1:
        defaults.top_k = top_k
    return defaults
