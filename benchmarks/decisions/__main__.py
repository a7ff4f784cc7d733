"""`python -m benchmarks.decisions overhead|local`: what questions cost the gateway, and on the local model.

overhead: CPU time of the gateway's process for requests whose engine has no model (echo), as a line through several
numbers of questions: so much a request, so much a question. local: wall time on the packaged model, and whether more
questions about one state cost no more than the state once and each question.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.decisions.requests import Client, questions, state
from benchmarks.decisions.rig import running
from benchmarks.gateway.machine import memory_mb, process_cpu
from benchmarks.gateway.tokenizer import ensure_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.decisions.rig import Rig

ROOT = Path(__file__).resolve().parents[2]
COUNTS = (1, 4, 12, 64)
STATE_WORDS = 150
WARM_REQUESTS = 40
# A token is about three quarters of a word of these texts.
LOCAL_STATES = {80: 62, 240: 190, 640: 510, 830: 660}
MOST_SUFFIX_SHARE = 1.2
MOST_TWELVE_SHARE = 2.5


def main() -> int:
    """Measure and print. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decisions", description=__doc__)
    parser.add_argument("what", choices=("overhead", "local"))
    parser.add_argument(
        "--requests", type=int, default=200, help="overhead: requests per number of questions"
    )
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="numbers of questions")
    asked = parser.parse_args()
    if asked.what == "local":
        with running(ROOT, ("--engine", "local")) as rig:
            return local(rig, asked.counts)
    tokenizer = ensure_tokenizer(ROOT / "build" / "bench" / "tokenizer")
    with running(ROOT, ("--engine", "echo", "--model-path", str(tokenizer), "--model-id", "d")) as rig:
        return overhead(rig, asked.counts, asked.requests)


def overhead(rig: Rig, counts: Sequence[int], requests: int) -> int:
    """CPU time of the gateway by number of questions, and the line through them."""
    client = Client(rig.port)
    for _ in range(WARM_REQUESTS):
        client.ask(state(STATE_WORDS), questions(12))
    before_mb = memory_mb(rig.gateway)
    print("questions  CPU a request")
    points: list[tuple[int, float]] = []
    for count in counts:
        bodies = [
            (state(STATE_WORDS), questions(count)) for _ in range(max(20, requests // max(1, count // 8)))
        ]
        began = process_cpu(rig.gateway)
        for body in bodies:
            client.ask(*body)
        spent = (process_cpu(rig.gateway) - began).total_s / len(bodies)
        points.append((count, spent * 1e6))
        print(f"{count:9}  {spent * 1e6:8.0f} us")
    texts = [state(STATE_WORDS) for _ in range(requests)]
    began = process_cpu(rig.gateway)
    for text in texts:
        client.chat("d", text)
    chat = (process_cpu(rig.gateway) - began).total_s / requests
    print(
        f"     chat  {chat * 1e6:8.0f} us, of one token over such a text: how busy the machine is shows here, too"
    )
    slope, base = statistics.linear_regression(*zip(*points, strict=True))
    print(f"a request {base:.0f} us (gate 1000) + {slope:.0f} us a question (gate 150)")
    print(f"memory {before_mb:.0f} MB after the first requests, {memory_mb(rig.gateway):.0f} MB at the end")
    return 0 if base <= 1000 and slope <= 150 else 1


def local(rig: Rig, counts: Sequence[int]) -> int:
    """Wall time on a model by length of the state and number of questions."""
    client = Client(rig.port)
    client.ask(state(20), questions(3))
    print("state  questions  tokens  seconds  of state + questions alone")
    for tokens, words in LOCAL_STATES.items():
        cold = min(_seconds(client, words, 1)[0] for _ in range(2))
        text = state(words)
        client.ask(text, questions(1))
        suffix = statistics.median(_again(client, text) for _ in range(3))
        times: dict[int, float] = {}
        for count in counts:
            times[count], used = _seconds(client, words, count)
            share = times[count] / (cold + max(count - 1, 0) * suffix)
            print(
                f"{tokens:5}  {count:9}  {used:6}  {times[count]:7.2f}  {share:5.2f} (gate {MOST_SUFFIX_SHARE})"
            )
        if tokens == 240 and {1, 12} <= times.keys():
            print(f"       12 questions cost {times[12] / times[1]:.2f} of one (gate {MOST_TWELVE_SHARE})")
    return 0


def _seconds(client: Client, words: int, count: int) -> tuple[float, int]:
    text, asked = state(words), questions(count)
    began = time.perf_counter()
    used = client.ask(text, asked)["usage"]["input_tokens"]
    return time.perf_counter() - began, used


def _again(client: Client, text: str) -> float:
    asked = questions(1)
    began = time.perf_counter()
    client.ask(text, asked)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
