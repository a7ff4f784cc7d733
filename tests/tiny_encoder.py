"""Small encoders on disk: an embedder with random weights, and classifiers that are trained on the spot, in a second each.

The classifiers learn texts of a few words, enough that their answers can be told right from wrong: the kind of a request,
topics that may come together, a pair that agrees, and where names and addresses stand. Everything is seeded.
"""

from __future__ import annotations

import json
import random
from itertools import chain
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
KINDS = {
    "math": ("add", "divide", "multiply", "sum", "equation", "fraction"),
    "code": ("python", "function", "compile", "loop", "variable", "debug"),
    "other": ("cook", "travel", "music", "garden", "weather", "football"),
}
TOPICS = {"billing": ("charged", "refund", "invoice"), "shipping": ("parcel", "delivery", "courier")}
NAMES = ("tom", "anna", "maria", "peter", "lucy", "omar")
_FILLER = ("please", "the", "can", "you", "my", "a", "with", "this", "what", "is", "about", "today")
# No letter of any vocabulary here: the unknown token.
_UNKNOWN = "\N{WAVING HAND SIGN}"
_MAIL_HOSTS = ("example.com", "mail.org", "post.net")
TAGS = ("O", "NAME", "EMAIL")


def write_tokenizer(target: Path, *, roberta: bool = False) -> int:
    """Train a tokenizer and write it. Returns its number of tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    words = [*chain(*KINDS.values(), *TOPICS.values()), *NAMES, *_FILLER, *_MAIL_HOSTS]
    texts = ["\n".join(topics.values())[:60_000], *(" ".join(words) for _ in range(50))]
    if roberta:
        names = ["<s>", "<pad>", "</s>", "<unk>"]
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=700,
            special_tokens=names,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        single, pair = "<s> $A </s>", "<s> $A </s> </s> $B </s>"
        ends = ("<s>", "</s>")
    else:
        names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=names, show_progress=False)
        single, pair = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
        ends = ("[CLS]", "[SEP]")
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(each, tokenizer.token_to_id(each)) for each in ends]
    )
    target.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(target / "tokenizer.json"))
    (target / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": names[1 if roberta else 0]})
    )
    return tokenizer.get_vocab_size()


def write_embedder(
    target: Path, *, roberta: bool = False, pooling: str = "mean", normalize: bool = True
) -> Path:
    """An embedder with random weights, with the files that sentence-transformers writes beside it."""
    import torch
    import transformers

    vocab_size = write_tokenizer(target, roberta=roberta)
    torch.manual_seed(7)
    if roberta:
        sizes = {
            **SIZES,
            "max_position_embeddings": SIZES["max_position_embeddings"] + 2,
            "type_vocab_size": 1,
        }
        model: Any = transformers.RobertaModel(
            transformers.RobertaConfig(vocab_size=vocab_size, pad_token_id=1, **sizes)
        )
    else:
        model = transformers.BertModel(transformers.BertConfig(vocab_size=vocab_size, **SIZES))
    model.eval().save_pretrained(target)
    modules = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    (target / "modules.json").write_text(
        json.dumps([
            {"idx": n, "name": str(n), "path": "" if n == 0 else f"{n}_{name}", "type": f"sentence_transformers.models.{name}"}
            for n, name in enumerate(modules)
        ])
    )  # fmt: skip
    (target / "1_Pooling").mkdir(exist_ok=True)
    flags = {
        "mean": "pooling_mode_mean_tokens",
        "cls": "pooling_mode_cls_token",
        "max": "pooling_mode_max_tokens",
    }
    told = {
        "word_embedding_dimension": SIZES["hidden_size"],
        **{flag: name == pooling for name, flag in flags.items()},
    }
    (target / "1_Pooling" / "config.json").write_text(json.dumps(told))
    config = json.loads((target / "config.json").read_text())
    config |= {"matryoshka_dimensions": [8, 16], "embedding_layers": [1, 2]}
    (target / "config.json").write_text(json.dumps(config))
    return target


def write_classifier(target: Path, *, steps: int = 200) -> Path:
    """Tells the kind of a request: one of three. With fewer steps it has learnt less."""
    draw = random.Random(3)
    labels = list(KINDS)

    def sample() -> tuple[str, int]:
        label = draw.randrange(len(labels))
        return _sentence(draw, [draw.choice(KINDS[labels[label]])]), label

    return _train_sequence(target, labels, [sample() for _ in range(400)], steps=steps)


def write_topics_classifier(target: Path) -> Path:
    """Tells which topics a message has: any number of two."""
    draw = random.Random(4)
    names = list(TOPICS)

    def sample() -> tuple[str, list[float]]:
        told = [draw.random() < 0.5 for _ in names]
        words = [draw.choice(TOPICS[name]) for name, is_there in zip(names, told, strict=True) if is_there]
        return _sentence(draw, words, longest=40), [float(each) for each in told]

    return _train_sequence(
        target, names, [sample() for _ in range(2000)], problem_type="multi_label_classification", steps=300
    )


def write_ranker(target: Path) -> Path:
    """A cross-encoder with one output: whether the second text speaks of code. The first does not count."""
    draw = random.Random(5)
    kinds = list(KINDS)

    def sample() -> tuple[tuple[str, str], list[float]]:
        first = _sentence(draw, [draw.choice(KINDS[draw.choice(kinds)])])
        kind = "code" if draw.random() < 0.5 else draw.choice(("math", "other"))
        return (first, _sentence(draw, [draw.choice(KINDS[kind])])), [float(kind == "code")]

    return _train_sequence(
        target,
        ["LABEL_0"],
        [sample() for _ in range(1000)],
        problem_type="multi_label_classification",
        steps=200,
    )


def write_tagger(target: Path, *, steps: int = 400) -> Path:
    """Tells where names and e-mail addresses stand. With fewer steps it has learnt less."""
    import torch
    import transformers
    from tokenizers import Tokenizer

    draw = random.Random(6)
    vocab_size = write_tokenizer(target)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    rows: list[tuple[list[int], list[int]]] = []
    for _ in range(2000):
        words, places = _tagged(draw)
        found = tokenizer.encode(words)
        tags = [
            0 if special else next((tag for start, end, tag in places if start <= first < end), 0)
            for (first, _), special in zip(found.offsets, found.special_tokens_mask, strict=True)
        ]
        rows.append((found.ids, tags))
    torch.manual_seed(7)
    config = transformers.BertConfig(
        vocab_size=vocab_size,
        id2label=dict(enumerate(TAGS)),
        label2id={tag: n for n, tag in enumerate(TAGS)},
        **SIZES,
    )
    model = transformers.BertForTokenClassification(config)
    _fit(model, rows, steps, lambda tags, length: tags + [-100] * (length - len(tags)))
    model.eval().save_pretrained(target)
    return target


def _tagged(draw: random.Random) -> tuple[str, list[tuple[int, int, int]]]:
    text, places = "", []
    for _ in range(draw.randint(3, 8)):
        word, tag = draw.choice((*_FILLER, _UNKNOWN)), 0
        if draw.random() < 0.25:
            word, tag = draw.choice(NAMES), 1
        elif draw.random() < 0.2:
            word, tag = f"{draw.choice(NAMES)}.{draw.choice(NAMES)}@{draw.choice(_MAIL_HOSTS)}", 2
        if tag:
            places.append((len(text), len(text) + len(word), tag))
        text += word + draw.choice((" ", " ", ", ", " ("))
    return text, places


def _sentence(draw: random.Random, words: Iterable[str], longest: int = 5) -> str:
    all_words = [*words, *draw.choices(_FILLER, k=draw.randint(2, longest))]
    draw.shuffle(all_words)
    return " ".join(all_words)


def _train_sequence(
    target: Path,
    labels: Sequence[str],
    samples: Sequence[tuple[Any, Any]],
    *,
    steps: int = 200,
    **config: Any,
) -> Path:
    import torch
    import transformers
    from tokenizers import Tokenizer

    vocab_size = write_tokenizer(target)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    torch.manual_seed(7)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=vocab_size,
            num_labels=len(labels),
            id2label=dict(enumerate(labels)),
            label2id={label: n for n, label in enumerate(labels)},
            **SIZES,
            **config,
        )
    )
    rows: list[Any] = []
    for text, label in samples:
        found = tokenizer.encode(*text) if isinstance(text, tuple) else tokenizer.encode(text)
        rows.append((found.ids, label, found.type_ids))
    _fit(model, rows, steps, lambda label, _: label)
    model.eval().save_pretrained(target)
    return target


def _fit(model: Any, rows: Sequence[Any], steps: int, label_of: Callable[[Any, int], Any]) -> None:
    import torch

    draw = random.Random(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # Post-norm networks learn nothing when they begin with long steps, and end well with short ones.
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.2)
    model.train()
    for _ in range(steps):
        batch = draw.sample(list(rows), 32)
        longest = max(len(row[0]) for row in batch)
        padded = [row[0] + [0] * (longest - len(row[0])) for row in batch]
        types = [
            (row[2] if len(row) > 2 else [0] * len(row[0])) + [0] * (longest - len(row[0])) for row in batch
        ]
        mask = [[1] * len(row[0]) + [0] * (longest - len(row[0])) for row in batch]
        loss = model(
            input_ids=torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            token_type_ids=torch.tensor(types),
            labels=torch.tensor([label_of(row[1], longest) for row in batch]),
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
