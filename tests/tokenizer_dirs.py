"""Makes small tokenizer directories for tests: byte-level BPE with a ChatML template, trained on the spot.

The text that it learns from is Python's own language reference, so nothing is downloaded. Ids depend on the
Python version: a test takes them from the tokenizer, it never spells them out.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pydoc_data.topics import topics
from string import ascii_uppercase
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKER_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CONTEXT_TOKENS = 8192
VOCAB_SIZE = 2000
TRAINING_CHARACTERS = 150_000

CHAT_TEMPLATE = r"""
{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}
{{- 'Functions you may call, one JSON Schema a line:\n' }}
{%- for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}
{{- 'A call is <tool_call>{"name": ..., "arguments": {...}}</tool_call>.<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'system' and loop.first %}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- elif message.role == 'assistant' and message.tool_calls %}
{{- '<|im_start|>assistant\n' + (message.content or '') }}
{%- for call in message.tool_calls %}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined %}{{ '<think>\n' if enable_thinking else '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %}
""".strip()
"""Does not think unless it is told to."""

PLAIN_TEMPLATE = CHAT_TEMPLATE.partition("{%- if enable_thinking")[0] + "{%- endif %}"
"""Knows nothing of thinking."""
DECISION_WORDS = ("yes", "no", *(a + b for a in "ABCDEFGHIJKL" for b in ascii_uppercase))
"""What a tokenizer needs beside single characters to label up to 255 options."""

THINKING_TEMPLATE = CHAT_TEMPLATE.replace(
    "'<think>\\n' if enable_thinking else", "'' if enable_thinking else"
)
"""Thinks unless it is told not to, and leaves the opening tag to the model."""


def make_tokenizer_dir(
    target: Path,
    *,
    vocab_size: int = VOCAB_SIZE,
    chat_template: str = CHAT_TEMPLATE,
    words: Sequence[str] = (),
) -> Path:
    """Train a tokenizer and write its directory. Returns the directory.

    Args:
        target: where.
        vocab_size: number of ids.
        chat_template: of the model.
        words: texts that are to be one token each.
    """
    tokenizer = _train(vocab_size, words)
    target.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(target / "tokenizer.json"))
    end = tokenizer.token_to_id("<|im_end|>")
    ids = {"bos_token_id": tokenizer.token_to_id("<|im_start|>"), "eos_token_id": end, "pad_token_id": end}
    model = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": CONTEXT_TOKENS,
        **ids,
    }
    _write(target / "config.json", model)
    _write(target / "generation_config.json", {**ids, "eos_token_id": [end]})
    _write(target / "tokenizer_config.json", _tokenizer_config(tokenizer, chat_template))
    return target


def _train(vocab_size: int, words: Sequence[str]) -> Tokenizer:
    return Tokenizer.from_str(_trained(vocab_size, tuple(words)))


@cache
def _trained(vocab_size: int, words: tuple[str, ...]) -> str:
    """The tokenizer as JSON text, trained once a process."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(MARKER_TOKENS),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "\n".join(topics[name] for name in sorted(topics))[:TRAINING_CHARACTERS]
    # The words that a ChatML prompt is made of, often enough to become tokens of their own.
    roles = "user\nassistant\nsystem\ntool\n" * 200
    often = "\n".join(words) + "\n"
    tokenizer.train_from_iterator([text, roles, often * 60 if words else ""], trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKER_TOKENS])
    return tokenizer.to_str()


def _tokenizer_config(tokenizer: Tokenizer, chat_template: str) -> dict[str, object]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {
        str(tokenizer.token_to_id(text)): {"content": text, **flags, "special": text in SPECIAL_TOKENS}
        for text in (*SPECIAL_TOKENS, *MARKER_TOKENS)
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT_TOKENS,
        "added_tokens_decoder": added,
        "chat_template": chat_template,
    }


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


HARMONY_TOKENS = (
    "<|return|>",
    "<|constrain|>",
    "<|channel|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|call|>",
)


def make_harmony_dir(source: Path, target: Path) -> Path:
    """Copy a tokenizer directory, with the tokens of Harmony and without a chat template. Returns the directory."""
    shutil.copytree(source, target)
    path = target / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in HARMONY_TOKENS]
    )
    tokenizer.save(str(path))
    end = tokenizer.token_to_id("<|return|>")
    for name in ("config.json", "generation_config.json"):
        content = json.loads((target / name).read_text())
        _write(target / name, content | {"eos_token_id": end, "vocab_size": tokenizer.get_vocab_size()})
    config = json.loads((target / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    _write(target / "tokenizer_config.json", config | {"eos_token": "<|return|>"})
    return target
