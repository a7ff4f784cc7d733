"""Turns media that break the contract into the fault that their sender is told. Pure; part of servicers/checks.py."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from servicers.token_bytes import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection

    from smg_proto.engine.v1 import work_pb2

ITEM_BYTES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1, "bool": 1}
DIGEST_BYTES = 32
MAX_TENSORS = 32


def media_fault(request: work_pb2.Generate, modalities: Collection[str]) -> str:
    """What is wrong with the media of a Generate; empty when nothing is."""
    free_from, tokens = 0, len(request.prompt_ids) // ID_BYTES
    for index, medium in enumerate(request.media):
        name = f"media[{index}]"
        if medium.modality not in modalities:
            allowed = ", ".join(modalities) or "none, the model takes text only"
            return f"{name}.modality is {medium.modality[:40]!r}; allowed: {allowed}"
        end = medium.offset + medium.length
        if not medium.length or medium.offset < free_from or end > tokens:
            return (
                f"{name} takes {medium.length} tokens from {medium.offset} on; allowed: at least one, from {free_from} "
                f"to {tokens}"
            )
        free_from = end
        if len(medium.digest) != DIGEST_BYTES:
            return f"{name}.digest has {len(medium.digest)} bytes; allowed: {DIGEST_BYTES}"
        if fault := _tensors_fault(name, medium):
            return fault
    return ""


def _tensors_fault(name: str, medium: work_pb2.Medium) -> str:
    tensors = medium.tensors
    if not 1 <= len(tensors) <= MAX_TENSORS:
        return f"{name}.tensors has {len(tensors)} entries; allowed: 1 to {MAX_TENSORS}"
    names = [tensor.name for tensor in tensors]
    if names != sorted(set(names)):
        return f"{name}.tensors are named {', '.join(names)[:200]}; allowed: different names, sorted"
    for tensor in tensors:
        item = ITEM_BYTES.get(tensor.dtype)
        if item is None:
            return f"{name}.tensors {tensor.name[:40]!r} has dtype {tensor.dtype[:40]!r}; allowed: {', '.join(ITEM_BYTES)}"
        if len(tensor.data) != item * math.prod(tensor.shape):
            return (
                f"{name}.tensors {tensor.name[:40]!r} has {len(tensor.data)} bytes; its shape and dtype take "
                f"{item * math.prod(tensor.shape)}"
            )
    return ""
