"""A tokenizer of single bytes for tests of constraints: 256 bytes, then three special tokens."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

VOCAB_SIZE = 264
"""Of the model: more than the tokenizer has."""
EOS = 257


def _byte_names() -> list[str]:
    """The character by which byte-level BPE writes each byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in visible}
    for place, byte in enumerate(byte for byte in range(256) if byte not in names):
        names[byte] = chr(256 + place)
    return [names[byte] for byte in range(256)]


def byte_tokenizer_json() -> str:
    """Text of its tokenizer.json. The id of a byte is its value."""
    vocabulary = {name: byte for byte, name in enumerate(_byte_names())}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    for name in ("<s>", "<end>", "<pad>"):
        tokenizer.add_special_tokens([AddedToken(name, special=True)])
    return tokenizer.to_str()


def ids_of(text: str) -> list[int]:
    return list(text.encode())


def text_of(ids) -> str:
    return bytes(i for i in ids if i < 256).decode()
