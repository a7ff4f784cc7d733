"""Trains the benchmark's tokenizer: byte-level BPE, 16,000 tokens, ChatML template, from Python's own sources.

No download and the same on every machine with the same Python, so a benchmark needs no model. Both gateways
and all engines load the same directory.
"""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 16_000
TRAINING_FILES = 400
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONTEXT_TOKENS = 32_768
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def ensure_tokenizer(target: Path) -> Path:
    """Train the tokenizer unless the directory holds it already. Returns the directory."""
    if not (target / "config.json").exists():
        _train(target)
    return target


def _train(target: Path) -> None:
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:TRAINING_FILES]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(source) for source in sources], trainer)
    target.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(target / "tokenizer.json"))
    (target / "tokenizer_config.json").write_text(json.dumps(_tokenizer_config()))
    # Last: its presence says that the directory is complete.
    (target / "config.json").write_text(json.dumps(_model_config()))


def _tokenizer_config() -> dict[str, object]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "model_max_length": CONTEXT_TOKENS,
        "added_tokens_decoder": {str(i): {"content": text, **flags} for i, text in enumerate(SPECIAL_TOKENS)},
        "chat_template": CHAT_TEMPLATE,
    }


def _model_config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": CONTEXT_TOKENS,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
