"""Trains one small tokenizer of each family that the prompt code claims to handle, and draws texts that are hard on it.

Two kinds of vocabulary for byte-level families: trained ones, as models have; and one in which any two bytes merge, so
that every place where two words are not told apart shows in the ids.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{TAIL}"
QWEN2 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{TAIL}"

SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_WORLD = (
    "don't we'll I'VE she's it'd 12345 3.14 héllo wörld straße naïve 日本語のテキスト、中文 한국어 العربية עברית"
    " हिन्दी ไทย Жизнь 😀 👩‍💻 ❤️ ½ ² Ⅷ\n\tif (a) {\n\t\treturn;\n\t}\n\n    four  spaces\r\n"
)


@cache
def corpus() -> tuple[str, ...]:
    """Python's language reference, and a few words of everything else."""
    text = "\n".join(topics[name] for name in sorted(topics))[:120_000]
    return (*text.split("\n\n"), *([_WORLD] * 60))


def byte_level(pre_tokenizer: Any, normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def split(regex: str) -> Any:
    by_regex = pre_tokenizers.Split(Regex(regex), "isolated")
    return pre_tokenizers.Sequence(
        [by_regex, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def any_two_bytes(pre_tokenizer: Any) -> Tokenizer:
    """A vocabulary of all pairs of bytes, merged in an arbitrary order.

    But for a tab and what is printed after it: no vocabulary has such a token, and the fast backend rests on that.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tab, blanks = "\u0109", "\u0109\u010a\u010d\u0120"  # as the alphabet writes tab, line ends and blank
    pairs = [(first, second) for first in alphabet for second in alphabet if first != tab or second in blanks]
    random.Random(1).shuffle(pairs)
    tokens = [*alphabet, *(first + second for first, second in pairs)]
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


@cache
def _sentencepiece_model() -> dict[str, Any]:
    """A BPE over SentencePiece's spelling with byte fallback, as JSON."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=1800, special_tokens=[*SPECIAL, *fallback], show_progress=False)
    tokenizer.train_from_iterator((word for text in corpus() for word in text.split(" ")), trainer)
    definition = json.loads(tokenizer.to_str())
    definition["added_tokens"] = [
        token for token in definition["added_tokens"] if token["content"] in SPECIAL
    ]
    return definition


def sentencepiece(*, normalizer: Any = None, pre_tokenizer: Any = None, strips: bool = True) -> Tokenizer:
    definition = _sentencepiece_model() | {"pre_tokenizer": None}
    tokenizer = Tokenizer.from_str(json.dumps(definition))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if strips else [])])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=1200, special_tokens=list(SPECIAL), unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(corpus()[::4], trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    """Not a model that generates, but a decoder that is no table."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=list(SPECIAL), show_progress=False)
    tokenizer.train_from_iterator(corpus()[::4], trainer)
    return tokenizer


def _gpt2_split() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": lambda: byte_level(_gpt2_split()),
    "digits": lambda: byte_level(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2_split()])
    ),
    "llama3": lambda: byte_level(split(LLAMA3)),
    "qwen2": lambda: byte_level(split(QWEN2), normalizers.NFC()),
    "gpt2_prefix_space": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "llama3_pairs": lambda: any_two_bytes(split(LLAMA3)),
    "llama2": lambda: sentencepiece(
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    ),
    "metaspace_first": lambda: sentencepiece(
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    ),
    "gemma": lambda: sentencepiece(
        normalizer=normalizers.Replace(" ", "▁"),
        pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"),
        strips=False,
    ),
    "unigram": unigram,
    "word_piece": word_piece,
}
FAST_FAMILIES = ("gpt2", "digits", "llama3", "qwen2", "llama3_pairs")


def write_family(name: str, target: Path) -> Path:
    """Write the tokenizer directory of one family."""
    tokenizer = FAMILIES[name]()
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKUP])
    target.mkdir(parents=True)
    tokenizer.save(str(target / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (target / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return target


_HARD = (
    *(chr(code) for code in range(32, 127)),
    *"éüßçøåłǅʰªº½²٣Ⅷſ世中アカ한글あ́ि",
    *("العربية", "עברית", "हिन्दी", "ไทย", "Жизнь", "日本語", "e\u0301", "\u1112\u1161\u11ab"),
    *("😀", "👩‍💻", "🇫🇷", "❤️", "\U00010348", "\ue000", "\ufeff", "\u200d", "\ufe0f", "Ⓐ"),
    *(
        "\t",
        "\n",
        "\r\n",
        "\r",
        "  ",
        "   ",
        "\x00",
        "\x0b",
        "\x1c",
        "\x7f",
        "\x85",
        "\u00a0",
        "\u2028",
        "\u3000",
    ),
    *(
        "don't",
        "we'll",
        "'S",
        "'s",
        "\n's",
        "\t's",
        "\t.K",
        '\t"key"',
        "\n \n",
        "\n\t\n",
        "1234567",
        "▁",
        "<0x41>",
    ),
)
_PLAIN = ("the", "ing", " a", " of", "123", "==", "//", "    ", "\n\n", " def", " return", "0")


def hard_text(rng: random.Random, pieces: int) -> str:
    """Adversarial text without any control token in it."""
    drawn = (rng.choice(_HARD if rng.random() < 0.6 else _PLAIN) for _ in range(pieces))
    text = "".join(drawn)
    for token in (*SPECIAL, *MARKUP):
        text = text.replace(token, "")
    return text


def long_text(rng: random.Random) -> str:
    """Ordinary text of some thousand characters with a few hard places in it."""
    text = "\n\n".join(rng.choices(corpus(), k=6))[:4000]
    for _ in range(rng.choice((1, 3, 9))):
        at = rng.randrange(len(text))
        text = text[:at] + hard_text(rng, 2) + text[at:]
    return text
