"""Kills one engine and freezes another under streams: no client may notice.

    python -m benchmarks.faults.chaos [--streams 200] [--local]

Every stream runs twice, undisturbed and disturbed, and each of its events must be the same to the byte. The disturbed
run: SIGKILL for the first engine, SIGSTOP for the second, then the first is started again and the second goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.faults.client import Reply, ask
from benchmarks.faults.fleet import EngineProcess, echo_flags, metric, start_gateway
from benchmarks.gateway.children import Children
from benchmarks.gateway.tokenizer import ensure_tokenizer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
WORDS = "wörter, 文字 and 🙂🙃 signs that are cut"
# A real model's numbers depend in their last digits on what else is in the batch and in the prefix cache.
LOCAL_TOLERANCE = 1e-3
_NUMBERS = re.compile(rb'(?<="logprob":)-?[0-9.e-]+')
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
TOPICS = (
    "What is the capital of France?",
    "Write two sentences about rain.",
    "List three colours.",
    "Why is the sky blue?",
    "Tell me a story about a fox.",
    "Name a large river.",
    "How do I boil an egg?",
    "Explain gravity to a child.",
)


def chat(text: str, model: str, **fields: Any) -> dict[str, Any]:
    """A greedy streamed chat that tells its usage."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **fields,
    }


def echo_bodies(count: int, tokens: int) -> list[dict[str, Any]]:
    """Requests of all kinds to echo engines, each of about so many tokens."""
    long = " ".join(f"{WORDS} {number}" for number in range(tokens // 16))
    forms: list[Callable[[int], dict[str, Any]]] = [
        lambda number: chat(f"{number} [[len:{tokens // 2}]]", "m"),
        lambda number: chat(f"{number} [[say:{long}]]", "m"),
        lambda number: chat(f"{number} [[len:{tokens // 2}]]", "m", logprobs=True, top_logprobs=2),
        lambda number: chat(f"{number} [[len:{tokens}]]", "m", max_completion_tokens=tokens - number % 7),
        lambda number: chat(f"{number} [[say:{long} STOP more]]", "m", stop="STOP"),
        lambda number: chat(f"{number} [[say:{long}]]", "m", n=2),
        lambda number: chat(f'{number} [[tool:look_up:{{"text": "{long}"}}]]', "m", tools=[TOOL]),
    ]
    return [forms[number % len(forms)](number) for number in range(count)]


def local_bodies(count: int, model: str) -> list[dict[str, Any]]:
    """Requests to the local model, with what an engine has to carry over: penalties, least tokens, a bias."""
    extra: Sequence[dict[str, Any]] = (
        {},
        {"logprobs": True, "top_logprobs": 2},
        {"frequency_penalty": 0.6},
        {"repetition_penalty": 1.2},
        {"min_tokens": 60},
        {"presence_penalty": 0.5},
    )
    return [
        chat(TOPICS[number % len(TOPICS)], model, max_completion_tokens=80, **extra[number % len(extra)])
        for number in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What clients saw.

    Attributes:
        streams: how many ran.
        errors: of them incomplete or with an error.
        differing: of them not the same as undisturbed.
        moved: further attempts that the gateway counted.
        longest_gap_s: longest silence that any client heard.
    """

    streams: int
    errors: int
    differing: int
    moved: int
    longest_gap_s: float

    @property
    def is_good(self) -> bool:
        """Nobody has noticed, and there was something to notice."""
        return self.errors == 0 and self.differing == 0 and self.moved > 0


async def run_all(port: int, bodies: Sequence[dict[str, Any]]) -> list[Reply]:
    """Ask all at once."""
    return list(await asyncio.gather(*(ask(port, body) for body in bodies)))


async def disturb(engines: Sequence[EngineProcess], wait_moved: Callable[[], Awaitable[None]]) -> None:
    """Kill the first engine, freeze the second, start the first again, and let the second go on.

    Args:
        engines: at least three, all ready.
        wait_moved: returns when the frozen engine's streams are elsewhere.
    """
    engines[0].kill()
    engines[1].freeze()
    engines[0].start()
    try:
        await wait_moved()
    finally:
        engines[1].thaw()
    await asyncio.to_thread(engines[0].wait_ready)


def compare(expected: Sequence[Reply], seen: Sequence[Reply], moved: int, tolerance: float = 0.0) -> Verdict:
    """Judge. Which tokens a prefix cache had may differ; else nothing, and log-probabilities by the tolerance."""
    return Verdict(
        streams=len(seen),
        errors=sum(not reply.is_whole for reply in seen),
        differing=sum(not _same(one, other, tolerance) for one, other in zip(expected, seen, strict=True)),
        moved=moved,
        longest_gap_s=max(reply.longest_gap_s for reply in seen),
    )


def _same(one: Reply, other: Reply, tolerance: float) -> bool:
    if not (one.is_whole and other.is_whole):
        return one.events == other.events
    for mine, theirs in zip_longest(_plain(one), _plain(other), fillvalue=b""):
        if _NUMBERS.split(mine) != _NUMBERS.split(theirs):
            return False
        pairs = zip(_NUMBERS.findall(mine), _NUMBERS.findall(theirs), strict=True)
        if any(a != b and abs(float(a) - float(b)) > tolerance for a, b in pairs):
            return False
    return True


def _plain(reply: Reply) -> list[bytes]:
    """The events of each choice, in order: those of several may come in any order among each other."""
    events, usage = list(reply.events), reply.usage
    events[-2] = repr((usage["prompt_tokens"], usage["completion_tokens"])).encode()
    return sorted(events, key=_choice_of)


def _choice_of(event: bytes) -> int:
    place = event.find(b'"index":')
    return int(event[place + 8 : place + 9]) if place >= 0 else 9


async def _run(count: int, *, is_local: bool, silence_s: float) -> Verdict:
    with Children(ROOT, BUILD / "chaos") as children:
        if is_local:
            flags = ["--engine", "local", "--dtype", "fp32", "--threads", "1", "--max-context", "1024",
                     "--model-id", "m"]  # fmt: skip
        else:
            flags = echo_flags(ensure_tokenizer(BUILD / "tokenizer"), 0.02, "--max-running", "512")
        engines = [EngineProcess(children, f"engine{number}", flags) for number in range(3)]
        for engine in engines:
            engine.wait_ready()
        gateway, port = start_gateway(
            children, [engine.url for engine in engines], "--worker-silence-secs", str(silence_s),
            "--policy", "round_robin", "--tool-call-parser", "hermes",
        )  # fmt: skip
        bodies = local_bodies(count, "m") if is_local else echo_bodies(count, 200)
        expected = await run_all(port, bodies)
        before = int(await asyncio.to_thread(metric, port, "smg_retries_total"))
        running = asyncio.create_task(run_all(port, bodies))
        await asyncio.sleep(1.5)
        await disturb(engines, lambda: asyncio.sleep(2 * silence_s))
        seen = await running
        moved = int(await asyncio.to_thread(metric, port, "smg_retries_total")) - before
        print({reply.status: reply.events[-1][:300] for reply in seen if not reply.is_whole})
        await asyncio.sleep(1.5)
        left = [
            await asyncio.to_thread(metric, port, name)
            for name in (
                "smg_requests_inflight",
                "smg_worker_inflight_requests",
                "smg_worker_running_sequences",
            )
        ]
        print(f"left in flight (requests, sequences here, sequences on engines): {left}")
        gateway.check_alive()
    return compare(expected, seen, moved, LOCAL_TOLERANCE if is_local else 0.0)


def main() -> None:
    """Run once and tell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.chaos", description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--local", action="store_true", help="three processes of the local model")
    parser.add_argument("--silence-secs", type=float, default=2.0)
    asked = parser.parse_args()
    verdict = asyncio.run(_run(asked.streams, is_local=asked.local, silence_s=asked.silence_secs))
    print(verdict)
    sys.exit(0 if verdict.is_good else 1)


if __name__ == "__main__":
    main()
