"""Times of single writes to a store, many at a time: how much the number of connections matters.

    python -m benchmarks.history.writes [--at-once 200] [--rounds 5]

Every write is a response with five items of a conversation of its own. The writers are in one process with the store.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import uvloop

from benchmarks.history.__main__ import percentile, running_postgres
from smg.storage.records import Conversation, StoredItem, StoredResponse
from smg.storage.sql import SqlStore

_TEXT = '{"text": "' + "words " * 200 + '"}'


async def _write(store: SqlStore, name: str) -> float:
    items = [StoredItem(f"{name}.{part}", 1, _TEXT) for part in range(5)]
    began_at = time.perf_counter()
    await store.put_response("t", StoredResponse(f"resp_{name}", 1, _TEXT, conversation_id=name), items)
    return time.perf_counter() - began_at


async def _run(at_once: int, rounds: int) -> None:
    with running_postgres() as url:
        for pool_size in (4, 16, 64):
            store = SqlStore(
                url.replace("postgresql:", "postgresql+asyncpg:"), timeout_s=30, pool_size=pool_size
            )
            await store.open()
            times: list[float] = []
            alone: list[float] = []
            # The first round opens the connections.
            for number in range(rounds + 1):
                names = [f"conv_{pool_size}_{number}_{each}" for each in range(at_once)]
                await asyncio.gather(*(store.put_conversation("t", Conversation(name, 1)) for name in names))
                written = await asyncio.gather(*(_write(store, name) for name in names))
                times += written if number else []
            for number in range(50):
                await store.put_conversation("t", Conversation(f"alone_{pool_size}_{number}", 1))
                alone.append(await _write(store, f"alone_{pool_size}_{number}"))
            await store.close()
            print(
                f"{pool_size} connections: {at_once} at once p50 {percentile(times, 0.5) * 1e3:.0f} ms, "
                f"p99 {percentile(times, 0.99) * 1e3:.0f} ms, {max(times) * 1e3 / at_once:.1f} ms each; "
                f"alone p50 {percentile(alone, 0.5) * 1e3:.1f} ms, p99 {percentile(alone, 0.99) * 1e3:.1f} ms",
                flush=True,
            )


def main() -> None:
    """Run once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history.writes", description=__doc__)
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    uvloop.run(_run(options.at_once, options.rounds))


if __name__ == "__main__":
    main()
