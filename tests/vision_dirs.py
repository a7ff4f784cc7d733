"""Makes a small model that sees: LLaVA with random weights, written by the `transformers` package itself, and pictures for it."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING

from tests.tokenizer_dirs import make_tokenizer_dir

if TYPE_CHECKING:
    from pathlib import Path

IMAGE_SIDE, PATCH_SIDE = 56, 14
IMAGE_TOKENS = (IMAGE_SIDE // PATCH_SIDE) ** 2
"""Placeholders of one image."""

TEMPLATE = r"""
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content %}
{%- if part.type == 'image' %}{{ '<image>' }}{% elif part.type == 'text' %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
""".strip()


def make_vision_dir(target: Path) -> Path:
    """Write tokenizer, processor and weights. Returns the directory."""
    import torch
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
        PreTrainedTokenizerFast,
    )
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    make_tokenizer_dir(target, chat_template=TEMPLATE)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(target))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIDE}, crop_size=IMAGE_SIDE),
        tokenizer,
        patch_size=PATCH_SIDE,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )
    processor.save_pretrained(str(target))
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    ids = {"eos_token_id": end, "bos_token_id": tokenizer.convert_tokens_to_ids("<|im_start|>")}
    torch.manual_seed(7)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=48,
            projection_dim=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=IMAGE_SIDE,
            patch_size=PATCH_SIDE,
        ),
        text_config=LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            **ids,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_select_strategy="default",
        vision_feature_layer=-2,
    )
    model = LlavaForConditionalGeneration(config)
    with torch.no_grad():
        for weight in model.parameters():
            # As they are initialized, a picture moves the answer too little for a test to see.
            if weight.dim() > 1:
                weight.mul_(6.0)
    model.save_pretrained(str(target))
    path = target / "generation_config.json"
    path.write_text(json.dumps({**ids, "eos_token_id": [end]}), encoding="utf-8")
    return target


def picture(red: int, green: int, blue: int, *, size: tuple[int, int] = (70, 60), kind: str = "PNG") -> bytes:
    """An image whose colours run from one corner to the other."""
    from PIL import Image

    width, height = size
    data = bytes(
        channel * (x + y) // (width + height) & 0xFF
        for y in range(height)
        for x in range(width)
        for channel in (red, green, blue)
    )
    buffer = io.BytesIO()
    Image.frombytes("RGB", size, data).save(buffer, kind)
    return buffer.getvalue()


def data_url(data: bytes, declared: str = "image/png") -> str:
    """The data URL of some bytes."""
    return f"data:{declared};base64,{base64.b64encode(data).decode()}"
