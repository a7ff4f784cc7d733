"""Writes request bodies of a wanted length in tokens, out of the prose of Python's language reference.

Every text is a random choice of lines, so no tokenizer cache of whole texts has seen it, while its words repeat
as those of real prompts do. The same seed gives the same bodies: each gateway gets equal work.
"""

from __future__ import annotations

import random
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, Literal

import orjson
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PromptKind = Literal["tiny", "small", "long_new", "long_history"]
Mode = Literal["stream", "unary"]
Message = dict[str, str]

MODEL_ID = "m"
SMALL_TOKENS = 195  # 220 with the template, the system prompt and the last line's overhang
LONG_TOKENS = 10_000
NEW_TURN_TOKENS = 30
HISTORY_TURNS = 10
HISTORY_SEED = 1
SYSTEM: Message = {"role": "system", "content": "You are helpful."}


def prose_lines(texts: Mapping[str, str] = topics) -> list[str]:
    """The lines of the reference that read as prose: ASCII, several words, no markup."""
    lines = (line.strip() for text in texts.values() for line in text.splitlines())
    return sorted({line for line in lines if line.isascii() and line.count(" ") >= 4 and line[0].isalpha()})


class PromptWriter:
    """Writes chat bodies whose texts have a given length in tokens."""

    def __init__(self, tokenizer_dir: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
        lines = prose_lines()
        encodings = self._tokenizer.encode_batch_fast(
            [line + "\n" for line in lines], add_special_tokens=False
        )
        self._lines = [(line, len(encoding)) for line, encoding in zip(lines, encodings, strict=True)]

    def text(self, tokens: int, rng: random.Random) -> str:
        """Random prose of at least so many tokens, over by at most one line."""
        chosen: list[str] = []
        while tokens > 0:
            line, length = rng.choice(self._lines)
            chosen.append(line)
            tokens -= length
        return "\n".join(chosen)

    def messages(self, kind: PromptKind, rng: random.Random) -> list[Message]:
        """The messages of one request."""
        if kind == "tiny":
            return [_user("Hi")]
        if kind == "small":
            return [SYSTEM, _user(self.text(SMALL_TOKENS, rng))]
        if kind == "long_new":
            return [SYSTEM, _user(self.text(LONG_TOKENS, rng))]
        return [*self._history(), _user(self.text(NEW_TURN_TOKENS, rng))]

    def bodies(self, kind: PromptKind, *, mode: Mode, tokens: int, count: int, seed: str) -> list[bytes]:
        """So many request bodies, each asking for `tokens` output tokens."""
        rng = random.Random(seed)
        return [chat_body(self.messages(kind, rng), mode, tokens) for _ in range(count)]

    def passage(self, count: int) -> tuple[list[int], str]:
        """Token ids that a mock engine answers with, and the text that they spell."""
        ids = self._tokenizer.encode(self.text(count, random.Random(0)), add_special_tokens=False).ids[:count]
        return ids, self._tokenizer.decode(ids)

    def decode(self, ids: list[int]) -> str:
        """The text of token ids."""
        return self._tokenizer.decode(ids)

    def _history(self) -> list[Message]:
        """A long conversation, the same in every request."""
        rng = random.Random(HISTORY_SEED)
        turns = [SYSTEM]
        for _ in range(HISTORY_TURNS):
            half = LONG_TOKENS // HISTORY_TURNS // 2
            turns += [_user(self.text(half, rng)), {"role": "assistant", "content": self.text(half, rng)}]
        return turns


def chat_body(messages: list[Message], mode: Mode, tokens: int) -> bytes:
    """A chat completion request as a client library would send it."""
    body: dict[str, object] = {
        "model": MODEL_ID,
        "max_tokens": tokens,
        "temperature": 0.7,
        "stream": mode == "stream",
        "messages": messages,
    }
    if mode == "stream":
        body["stream_options"] = {"include_usage": True}
    return orjson.dumps(body)


def _user(text: str) -> Message:
    return {"role": "user", "content": text}
