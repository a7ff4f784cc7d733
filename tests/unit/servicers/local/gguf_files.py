"""Writes small GGUF files, valid ones and damaged ones."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
ALIGNMENT = 32
GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(content: Any) -> bytes:
    if isinstance(content, bool):
        return struct.pack("<I?", BOOL, content)
    if isinstance(content, int):
        return struct.pack("<II", U32, content)
    if isinstance(content, float):
        return struct.pack("<If", F32, content)
    if isinstance(content, str):
        return struct.pack("<I", STRING) + string(content)
    if content and isinstance(content[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(content)) + b"".join(map(string, content))
    return struct.pack("<IIQ", ARRAY, I32, len(content)) + np.asarray(content, "<i4").tobytes()


def gguf_bytes(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[tuple[int, ...], int, bytes]],
    *,
    version: int = 3,
) -> bytes:
    """A whole file. Tensors are name -> (shape with rows first, type number, data)."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    header += b"".join(string(key) + value(content) for key, content in metadata.items())
    body = b""
    for name, (shape, kind, data) in tensors.items():
        body += b"\0" * (-len(body) % ALIGNMENT)
        header += string(name) + struct.pack("<I", len(shape))
        header += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kind, len(body))
        body += data
    return header + b"\0" * (-len(header) % ALIGNMENT) + body


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    """A file of float32 tensors."""
    packed = {name: (array.shape, 0, array.astype("<f4").tobytes()) for name, array in tensors.items()}
    path.write_bytes(gguf_bytes(metadata, packed))
    return path


def gguf_metadata(config, architecture):
    return {
        "general.architecture": architecture,
        f"{architecture}.block_count": config.layers,
        f"{architecture}.context_length": config.context_tokens,
        f"{architecture}.embedding_length": config.hidden_size,
        f"{architecture}.feed_forward_length": config.intermediate_size,
        f"{architecture}.attention.head_count": config.heads,
        f"{architecture}.attention.head_count_kv": config.kv_heads,
        f"{architecture}.attention.key_length": config.head_dim,
        f"{architecture}.rope.dimension_count": config.head_dim,
        f"{architecture}.rope.freq_base": config.rope.theta,
        f"{architecture}.attention.layer_norm_rms_epsilon": config.norm_eps,
    }


def interleave(rows, heads):
    """What llama.cpp's converter does to q and k, written head by head and row by row."""
    size = rows.shape[0] // heads
    order = [head * size + (i // 2) + (i % 2) * (size // 2) for head in range(heads) for i in range(size)]
    return rows[order]


def gguf_arrays(config, weights, *, interleaved):
    arrays = {}
    for name, tensor in weights.items():
        array = tensor.numpy()
        if interleaved and ".q_proj" in name:
            array = interleave(array, config.heads)
        if interleaved and ".k_proj" in name:
            array = interleave(array, config.kv_heads)
        for ours, theirs in GGUF_NAMES.items():
            name = name.replace(ours, theirs)
        arrays[name] = array
    return arrays
