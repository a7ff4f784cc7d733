"""Measures rendering and tokenizing: CPU microseconds for a short prompt, a long one, and a new turn on a long history.

usage: python benchmarks/tokenizing.py TOKENIZER_DIR [--backend reference] [--repeat 30]
Prompts are drawn anew from the standard library's sources and docstrings, so no segment but the template's was seen.
CPU time of the process, medians; the machine's speed is in every figure, so compare figures of one run only.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import random
import statistics
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smg.prompt.builder import PromptBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

CHARS_PER_TOKEN = (
    3.4  # of these texts in a vocabulary of 49,000, about; the table shows the tokens there really were
)


def prose_and_code() -> str:
    """Some megabytes of English and Python from the installation."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:120]
    texts = [path.read_text(encoding="utf-8", errors="ignore") for path in sources]
    return inspect.cleandoc("\n".join(texts))


class Texts:
    """Draws pieces of a text that were not drawn before, as far as chance goes."""

    def __init__(self, text: str, seed: int) -> None:
        self._text = text
        self._rng = random.Random(seed)

    def draw(self, tokens: int) -> str:
        length = int(tokens * CHARS_PER_TOKEN)
        start = self._rng.randrange(len(self._text) - length)
        return self._text[start : start + length]


def history(texts: Texts, tokens: int) -> list[dict[str, Any]]:
    roles = ["user", "assistant"] * 10
    turns = [{"role": role, "content": texts.draw(tokens // len(roles))} for role in roles]
    return [{"role": "system", "content": "You are a helpful assistant."}, *turns]


def cpu_us(
    work: Callable[[list[dict[str, Any]]], int], chats: list[list[dict[str, Any]]]
) -> tuple[float, float]:
    """Median CPU time of one chat in µs, and mean tokens."""
    times: list[float] = []
    tokens: list[int] = []
    gc.collect()
    gc.disable()
    for chat in chats:
        start = time.process_time_ns()
        count = work(chat)
        times.append((time.process_time_ns() - start) / 1000)
        tokens.append(count)
    gc.enable()
    return statistics.median(times), statistics.fmean(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--backend", choices=["auto", "reference"], default="auto")
    parser.add_argument("--repeat", type=int, default=30)
    options = parser.parse_args()
    start = time.perf_counter()
    builder = PromptBuilder.load(options.directory, backend=options.backend)
    print(f"loaded in {time.perf_counter() - start:.2f} s, backend {options.backend}")
    texts = Texts(prose_and_code(), seed=1)

    def work(chat: list[dict[str, Any]]) -> int:
        return builder.chat(chat).tokens

    def question(tokens: int) -> dict[str, Any]:
        return {"role": "user", "content": texts.draw(tokens)}

    seen = history(texts, 10_000)
    for _ in range(20):
        work([question(200)])
    work([*seen, question(20)])
    cases = {
        "220 tokens, never seen": ([[question(190)] for _ in range(options.repeat * 10)], 60),
        "10k tokens, never seen": ([[question(10_000)] for _ in range(options.repeat)], 700),
        "10k history seen, short new turn": ([[*seen, question(20)] for _ in range(options.repeat)], 120),
    }
    print(f"{'case':34}{'tokens':>8}{'CPU µs':>10}{'aim µs':>8}")
    for name, (chats, aim) in cases.items():
        median, tokens = cpu_us(work, chats)
        print(f"{name:34}{tokens:8.0f}{median:10.1f}{aim:8}")


if __name__ == "__main__":
    main()
