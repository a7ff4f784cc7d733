"""SGLang's servicer for unit tests: the stand-in behind it, and a session that keeps what it is told."""

from __future__ import annotations

import asyncio
import contextlib

from servicers.base import EngineOptions
from servicers.sglang.cards import ServedByUs
from servicers.sglang.servicer import SglangEngine
from servicers.sglang.settings import settings_from_options
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2
from tests.contract.servicers.sglang_stand_in import StandInPackage

ENDS = ("finished", "failed", "scored", "embedded", "classified")


def served(*, context: int = 100, reasons: bool = False, **defaults) -> ServedByUs:
    card = card_pb2.ModelCard(
        id="m", context_length=context, vocab_size=1000, defaults=card_pb2.Sampling(**defaults)
    )
    return ServedByUs(card, ranks=1, reasons=reasons, is_classifier=False, max_running=4, version="0")


def generate(sequence: int, *ids: int, **fields) -> work_pb2.Generate:
    sampling = card_pb2.Sampling(**{"temperature": 0, "max_new_tokens": 4, **fields})
    return work_pb2.Generate(
        sequence=sequence,
        prompt_ids=b"".join(each.to_bytes(4, "little") for each in ids),
        sampling=sampling,
        stream=True,
    )


class Listener:
    """One router's session."""

    unsent_events = 0

    def __init__(self) -> None:
        self.events: list[engine_pb2.SessionEvent] = []
        self._changed = asyncio.Event()

    def emit(self, event) -> None:
        self.events.append(event)
        self._changed.set()

    def ends(self) -> dict[int, object]:
        return {
            each.sequence: each for event in self.events for kind in ENDS for each in getattr(event, kind)
        }

    def tokens(self) -> list[int]:
        return [token for event in self.events for token in event.token]

    async def until(self, is_so) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    async def wait_ends(self, count: int) -> dict[int, object]:
        await self.until(lambda: len(self.ends()) == count)
        return self.ends()


@contextlib.asynccontextmanager
async def running(tokenizer_dir, package: StandInPackage | None = None, **arguments):
    """A started servicer with its package."""
    package = package or StandInPackage()
    options = EngineOptions(
        (str(tokenizer_dir),), ("tiny",), max_context=1024, engine_args=tuple(arguments.items())
    )
    engine = SglangEngine(settings_from_options(options), package)
    await engine.start()
    try:
        yield engine, package
    finally:
        await engine.stop()
