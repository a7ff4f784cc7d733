"""Measures the bare network of the local engine: prompt tokens and output tokens per second, load time, memory.

No scheduler, no sampling but argmax, no gRPC: what is left of these figures in the engine tells what the rest costs.
Medians are what a busy machine gave, bests what it can give; tokens per CPU second hold on both.

    python -m benchmarks.engine.model [--dtype bf16|fp32] [--threads 2] [--int4] [--model PATH]
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from servicers.local.model import Model

BATCHES = (1, 4, 16)
PROMPTS = (128, 512)
CONTEXT = 256
"""Tokens that every decoding sequence already has."""


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens per second of one load."""

    name: str
    best: float
    median: float
    per_cpu_second: float

    def __str__(self) -> str:
        return f"| {self.name:12} | {self.best:8.0f} | {self.median:8.0f} | {self.per_cpu_second:12.0f} |"


def measure(name: str, tokens: int, repeats: int, step: Callable[[], object]) -> Row:
    for _ in range(3):
        step()
    walls: list[float] = []
    cpu_start = time.process_time()
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        walls.append(time.perf_counter() - start)
    cpu = (time.process_time() - cpu_start) / repeats
    return Row(name, tokens / min(walls), tokens / statistics.median(walls), tokens / cpu)


def prefill_row(model: Model, tokens: int, repeats: int) -> Row:
    import torch

    from servicers.local.model import Segment

    cache = model.new_cache(1, tokens)
    ids = torch.randint(model.config.vocab_size, (tokens,))
    places, last = torch.arange(tokens), torch.tensor([tokens - 1])

    def step() -> None:
        hidden = model.forward(ids, places, [Segment(0, 0, tokens, 0)], cache, rows=last)
        model.logits(hidden).argmax(-1)

    return measure(f"prefill {tokens}", tokens, repeats, step)


def decode_row(model: Model, batch: int, repeats: int) -> Row:
    import torch

    from servicers.local.model import Segment

    cache = model.new_cache(batch, CONTEXT + repeats + 8)
    ids = torch.randint(model.config.vocab_size, (batch,))
    past = CONTEXT

    def step() -> None:
        nonlocal ids, past
        segments = [Segment(slot, slot, 1, past) for slot in range(batch)]
        ids = model.logits(model.forward(ids, torch.full((batch,), past), segments, cache)).argmax(-1)
        past += 1

    return measure(f"decode x{batch}", batch, repeats, step)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, help="GGUF file or directory of safetensors; the default model if left out"
    )
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--int4", action="store_true", help="the 4-bit kernel for few rows")
    parser.add_argument("--repeats", type=int, default=15, help="steps timed per row")
    parser.add_argument("--spin", action="store_true", help="leave OpenMP's threads spinning while they wait")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if not arguments.spin:
        # Before torch is imported: a spinning thread takes the core that another process needs.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    start = time.perf_counter()
    import torch

    from servicers.local.checkpoint import find_default_model
    from servicers.local.model import load_model

    imported = time.perf_counter()
    path = arguments.model or find_default_model()
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[arguments.dtype]
    model = load_model(
        path, dtype=dtype, device=arguments.device, threads=arguments.threads, int4=arguments.int4
    )
    loaded = time.perf_counter()
    loaded_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{path.name} · {arguments.dtype} · {arguments.threads} threads · {arguments.device}", end=" · ")
    print(f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} · torch {torch.__version__}")
    print(f"{model.precision}")
    print(
        f"import {imported - start:.2f} s, load {loaded - imported:.2f} s, {loaded_mb:.0f} MB at most while loading\n"
    )
    print("| load         | best t/s | median   | per CPU sec. |\n|---|---|---|---|")
    for tokens in PROMPTS:
        print(prefill_row(model, tokens, max(3, arguments.repeats // 3)), flush=True)
    for batch in BATCHES:
        print(decode_row(model, batch, arguments.repeats), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
