"""Measures the local engine through its Engine interface: scheduler, cache, sampling and events, all but gRPC.

What a step costs beyond the network's forward and head is told apart, and so is what a cached prefix saves: the
second question on one document has only the question to compute. Medians and bests are of several rounds; a busy machine
shows in them, and less in tokens per CPU second.

    python -m benchmarks.engine.engine [--dtype bf16|fp32] [--threads 2] [--rounds 3] [--model PATH]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import statistics
import sys
import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from servicers.local.engine import LocalEngine
from servicers.local.settings import LocalSettings
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2

if TYPE_CHECKING:
    from servicers.local.loading import LoadedEngine

BATCHES = (1, 4, 16)
PROMPT_TOKENS = 128
NEW_TOKENS = 96
DOCUMENT_TOKENS = 600
QUESTION_TOKENS = 12
SENTENCES = (
    "The committee met on Tuesday to talk about the new bridge over the river.",
    "Many residents had written letters, and some of them were angry about the cost.",
    "An engineer explained how the old pillars could be used again for a smaller road.",
    "In the afternoon the mayor promised that the work would begin before the winter.",
    "Nobody asked where the ferry would land while the bridge was closed.",
    "A farmer from the other side said that his milk had to reach the town every day.",
    "The newspaper printed a map of the valley with three possible routes.",
    "Later that week a storm washed away a part of the eastern bank.",
)
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8, "top_p": 0.95},
    "all": {"temperature": 0.8, "top_p": 0.95, "presence_penalty": 0.5, "repetition_penalty": 1.1},
}


@dataclass
class Clock:
    """Time inside the network and inside whole steps."""

    network_s: float = 0.0
    steps_s: float = 0.0
    steps: int = 0

    def timed(self, function: Any, name: str) -> Any:
        def run(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments)
            setattr(self, name, getattr(self, name) + time.perf_counter() - start)
            return result

        return run


@dataclass(eq=False)
class Sink:
    """A session that notes when each sequence got what."""

    unsent_events: int = 0
    first_s: dict[int, float] = field(default_factory=dict)
    tokens: int = 0
    cached: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        now = time.perf_counter()
        for number in event.sequence:
            self.first_s.setdefault(number, now)
        self.tokens += len(event.token)
        for started in event.started:
            self.cached[started.sequence] = started.cached_tokens
        for failed in event.failed:
            raise SystemExit(f"sequence {failed.sequence} failed: {failed.message}")
        self.open.difference_update(finished.sequence for finished in event.finished)
        if not self.open:
            self.done.set()


class Bench:
    def __init__(self, engine: LocalEngine, clock: Clock, tokenizer: Tokenizer) -> None:
        self._engine = engine
        self._clock = clock
        self._random = random.Random(1)
        self._tokenizer = tokenizer
        self._number = 0

    def prompt(self, tokens: int) -> list[int]:
        """English text, for the shape of what a model expects decides what sampling costs."""
        sentences = self._random.choices(SENTENCES, k=tokens // 8)
        return self._tokenizer.encode(" ".join(sentences)).ids[:tokens]

    async def run(self, prompts: list[list[int]], **sampling: Any) -> tuple[Sink, float, list[int]]:
        """Submit prompts together and wait for all. Returns the sink, the start, and the sequence numbers."""
        sink, numbers, request = Sink(), [], engine_pb2.SessionRequest()
        for prompt in prompts:
            self._number += 1
            numbers.append(self._number)
            request.generate.append(
                work_pb2.Generate(
                    sequence=self._number,
                    prompt_ids=array("I", prompt).tobytes(),
                    sampling=card_pb2.Sampling(ignore_eos=True, **sampling),
                    stream=True,
                )
            )
        sink.open.update(numbers)
        start = time.perf_counter()
        self._engine.submit(sink, request)
        await sink.done.wait()
        self._engine.close(sink)
        return sink, start, numbers

    async def decode(self, batch: int, kind: str) -> tuple[float, float, float]:
        """Tokens per second while all decode, tokens per CPU second, milliseconds of a step beyond the network."""
        prompts = [self.prompt(PROMPT_TOKENS) for _ in range(batch)]
        # Prompts first, so that only decoding is timed.
        await self.run(prompts, max_new_tokens=1, temperature=0.0)
        clock = self._clock
        network_s, steps_s, steps = clock.network_s, clock.steps_s, clock.steps
        cpu_s = time.process_time()
        sink, _, _ = await self.run(prompts, max_new_tokens=NEW_TOKENS, **KINDS[kind])
        end, cpu_s = time.perf_counter(), time.process_time() - cpu_s
        beyond_s = (clock.steps_s - steps_s) - (clock.network_s - network_s)
        first = max(sink.first_s.values())
        beyond_ms = beyond_s / (clock.steps - steps) * 1e3
        return (sink.tokens - batch) / (end - first), sink.tokens / cpu_s, beyond_ms

    async def prefill(self, tokens: int) -> float:
        """Prompt tokens per second up to the first token."""
        sink, start, (number,) = await self.run([self.prompt(tokens)], max_new_tokens=1, temperature=0.0)
        return tokens / (sink.first_s[number] - start)

    async def questions(self) -> tuple[float, float, int]:
        """Seconds to the first token of a first and a second question on one document, and the tokens reused."""
        document = self.prompt(DOCUMENT_TOKENS)
        times = []
        for _ in range(2):
            # Questions differ from their first token on.
            prompt = [*document, self._number + 100, *self.prompt(QUESTION_TOKENS)]
            sink, start, (number,) = await self.run([prompt], max_new_tokens=8, temperature=0.0)
            times.append(sink.first_s[number] - start)
        return times[0], times[1], sink.cached[number]


def make_engine(settings: LocalSettings, clock: Clock) -> LocalEngine:
    def load(settings: LocalSettings, call_later: Any) -> LoadedEngine:
        from servicers.local.loading import load_engine

        loaded = load_engine(settings, call_later)
        stepper: Any = loaded.stepper
        model = stepper._model  # noqa: SLF001 - the benchmark measures inside
        model.forward = clock.timed(model.forward, "network_s")
        model.logits = clock.timed(model.logits, "network_s")
        step = clock.timed(stepper.step, "steps_s")

        def counted(now_s: float) -> Any:
            clock.steps += 1
            return step(now_s)

        stepper.step = counted
        return loaded

    return LocalEngine(settings, load=load)


async def measure(arguments: argparse.Namespace) -> None:
    clock, start = Clock(), time.perf_counter()
    settings = LocalSettings(
        model_path=arguments.model,
        dtype=arguments.dtype,
        device=arguments.device,
        threads=arguments.threads,
        max_context=2048,
        max_running=32,
    )
    engine = make_engine(settings, clock)
    await engine.start()
    card = engine.describe().models[0]
    print(
        f"{card.id} · {arguments.dtype} · {arguments.threads} threads · {platform.machine()} · "
        f"start {time.perf_counter() - start:.1f} s\n"
    )
    tokenizer_dir = engine.tokenizer_dir("")
    if tokenizer_dir is None:
        raise SystemExit("the model has no tokenizer to make prompts with")
    bench = Bench(engine, clock, Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json")))
    await bench.decode(4, "sampled")
    rounds = range(arguments.rounds)
    print(
        "| load | median tok/s | best | per CPU second | ms of a step beyond the network |\n|---|---|---|---|---|"
    )
    for kind in KINDS:
        for batch in BATCHES:
            results = [await bench.decode(batch, kind) for _ in rounds]
            speeds, per_cpu, beyond = zip(*results, strict=True)
            print(
                f"| decode x{batch}, {kind} | {statistics.median(speeds):.0f} | {max(speeds):.0f} "
                f"| {statistics.median(per_cpu):.0f} | {statistics.median(beyond):.2f} |",
                flush=True,
            )
    for tokens in (128, 512):
        speeds = [await bench.prefill(tokens) for _ in rounds]
        print(f"| prefill {tokens} | {statistics.median(speeds):.0f} | {max(speeds):.0f} | | |", flush=True)
    print("\n| question on a document of 600 tokens | first token after, median ms | tokens from the cache |")
    print("|---|---|---|")
    results = [await bench.questions() for _ in rounds]
    cold, warm = (statistics.median(r[i] for r in results) for i in (0, 1))
    print(f"| first | {cold * 1e3:.0f} | 0 |\n| second | {warm * 1e3:.0f} | {results[0][2]} |")
    print(f"\nsecond question {cold / warm:.1f} times as fast")
    await engine.stop()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="GGUF file or directory; the default model if left out")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    # Before torch is imported, as in the worker.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    asyncio.run(measure(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
