"""What clients ask: three workloads, made before the simulation from a seed, the same for every policy.

A workload is a list of sessions. Each begins at its time, and each turn is sent a while after the one before has
ended; a single request is a session of one turn.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.routing.engine import BLOCK_TOKENS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_BLOCK_BYTES = 4 * BLOCK_TOKENS


class Prompt(NamedTuple):
    """One request.

    Attributes:
        ids: packed token ids.
        tokens: how many.
        output_tokens: length of the answer.
        blocks: what an engine's cache knows the prompt by: chained, whole blocks.
        whole_blocks: the same of prompt and answer.
        key: routing key: the session's.
        pause_s: wait before it is sent.
    """

    ids: bytes
    tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    whole_blocks: tuple[int, ...]
    key: str
    pause_s: float


class Session(NamedTuple):
    """Attributes: starts_s: when its first turn is sent. turns: in order."""

    starts_s: float
    turns: tuple[Prompt, ...]


def _blocks(ids: bytes) -> tuple[int, ...]:
    chain = 0
    blocks: list[int] = []
    for end in range(_BLOCK_BYTES, len(ids) + 1, _BLOCK_BYTES):
        chain = hash((chain, ids[end - _BLOCK_BYTES : end]))
        blocks.append(chain)
    return tuple(blocks)


def _prompt(ids: bytes, answer: bytes, key: str, pause_s: float = 0.0) -> Prompt:
    whole = _blocks(ids + answer)
    count = len(ids) // _BLOCK_BYTES
    return Prompt(ids, len(ids) // 4, len(answer) // 4, whole[:count], whole, key, pause_s)


def _ids(rng: random.Random, least: int, most: int) -> bytes:
    return rng.randbytes(4 * rng.randint(least, most))


def shared_prompts(rng: random.Random, requests: int) -> list[Session]:
    """96 applications of unequal popularity, each with a system prompt of its own, and short questions that differ."""
    systems = [_ids(rng, 800, 3200) for _ in range(96)]
    weights = [1 / (rank + 1) ** 0.9 for rank in range(len(systems))]
    chosen = rng.choices(range(len(systems)), weights, k=requests)
    clock = itertools.accumulate(rng.expovariate(90) for _ in range(requests))
    return [
        Session(
            starts_s,
            (
                _prompt(
                    systems[system] + _ids(rng, 30, 300),
                    _ids(rng, 20, 160),
                    "",
                ),
            ),
        )
        for system, starts_s in zip(chosen, clock, strict=True)
    ]


def multi_turn(rng: random.Random, requests: int) -> list[Session]:
    """Conversations of some turns behind one of four system prompts; each turn holds all before it."""
    systems = [_ids(rng, 300, 900) for _ in range(4)]
    sessions: list[Session] = []
    starts_s, made = 0.0, 0
    while made < requests:
        starts_s += rng.expovariate(9)
        history = rng.choice(systems)
        turns: list[Prompt] = []
        for turn in range(rng.randint(3, 12)):
            ids = history + _ids(rng, 60, 500)
            answer = _ids(rng, 40, 200)
            turns.append(
                _prompt(ids, answer, f"session-{len(sessions)}", rng.expovariate(1 / 4) if turn else 0)
            )
            history = ids + answer
        sessions.append(Session(starts_s, tuple(turns)))
        made += len(turns)
    return sessions


def uniform(rng: random.Random, requests: int) -> list[Session]:
    """Prompts that have nothing in common."""
    clock = itertools.accumulate(rng.expovariate(100) for _ in range(requests))
    return [
        Session(
            starts_s,
            (_prompt(_ids(rng, 100, 1500), _ids(rng, 20, 160), ""),),
        )
        for starts_s in clock
    ]


WORKLOADS: dict[str, Callable[[random.Random, int], list[Session]]] = {
    "shared system prompts": shared_prompts,
    "multi-turn sessions": multi_turn,
    "uniform": uniform,
}
