"""Runs the echo engine without gRPC: a sink that keeps what it gets, and prompts in the tokenizer's chat form."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from tokenizers import Tokenizer

from servicers.base import EngineOptions
from servicers.echo import create_engine
from servicers.token_bytes import ids_from_bytes, ids_to_bytes
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2

STOP, LENGTH, ABORT = (
    work_pb2.FINISH_REASON_STOP,
    work_pb2.FINISH_REASON_LENGTH,
    work_pb2.FINISH_REASON_ABORT,
)


class Collector:
    """An EventSink."""

    def __init__(self) -> None:
        self.events: list[engine_pb2.SessionEvent] = []
        self.unsent_events = 0
        self.tokens: dict[int, list[int]] = {}
        self.chunks: dict[int, list[int]] = {}
        self.logprobs: dict[int, list] = {}
        self.started: dict[int, work_pb2.Started] = {}
        self.ends: dict[int, object] = {}
        self._changed = asyncio.Event()

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        self.events.append(event)
        at = 0
        for number, count in zip(event.sequence, event.count or [1] * len(event.sequence), strict=True):
            self.tokens.setdefault(number, []).extend(event.token[at : at + count])
            self.chunks.setdefault(number, []).append(count)
            at += count
        for entry in event.logprobs:
            self.logprobs.setdefault(entry.sequence, []).extend(entry.tokens)
        for started in event.started:
            self.started[started.sequence] = started
        for ends in (event.finished, event.failed, event.scored, event.embedded, event.classified):
            for end in ends:
                assert end.sequence not in self.ends
                self.ends[end.sequence] = end
        self._changed.set()

    async def wait(self, is_done) -> None:
        """Wait until a condition on this collector holds."""
        async with asyncio.timeout(10):
            while not is_done():
                self._changed.clear()
                await self._changed.wait()


class Bench:
    """An engine, one session, and the tokenizer."""

    def __init__(self, engine, tokenizer: Tokenizer) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.sink = Collector()
        self._number = 0

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, ids) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def chat(self, *turns: str) -> bytes:
        """Prompt ids of a chat: user, assistant, user, …"""
        text = ""
        for index, turn in enumerate(turns):
            text += f"<|im_start|>{('user', 'assistant')[index % 2]}\n{turn}<|im_end|>\n"
        return ids_to_bytes(self.ids(text + "<|im_start|>assistant\n"))

    def generate(self, prompt: str | bytes, **fields) -> work_pb2.Generate:
        """Fields of Sampling may be given beside those of Generate."""
        self._number += 1
        sampling = {
            name: fields.pop(name)
            for name in list(fields)
            if name in card_pb2.Sampling.DESCRIPTOR.fields_by_name
        }
        return work_pb2.Generate(
            **{
                "sequence": self._number,
                "prompt_ids": self.chat(prompt) if isinstance(prompt, str) else prompt,
                "sampling": card_pb2.Sampling(**sampling),
                "stream": True,
                **fields,
            }
        )

    def submit(self, *items, abort=()) -> list[int]:
        request = engine_pb2.SessionRequest(abort=abort)
        for item in items:
            if not item.sequence:
                self._number += 1
                item.sequence = self._number
            getattr(request, type(item).__name__.lower()).append(item)
        self.engine.submit(self.sink, request)
        return [item.sequence for item in items]

    async def run(self, *items):
        """Submit and wait for all ends. Returns the numbers."""
        numbers = self.submit(*items)
        await self.sink.wait(lambda: all(number in self.sink.ends for number in numbers))
        return numbers

    async def run_one(self, item):
        """Returns the tokens and the end."""
        [number] = await self.run(item)
        end = self.sink.ends[number]
        tokens = self.sink.tokens.get(number, [])
        if isinstance(end, work_pb2.Finished) and end.token_ids:
            tokens = list(ids_from_bytes(end.token_ids))
        return tokens, end

    async def reply(self, prompt: str | bytes, **fields) -> str:
        """Text of the answer."""
        tokens, _ = await self.run_one(self.generate(prompt, **fields))
        return self.text(tokens)


@asynccontextmanager
async def bench(tokenizer_dir, **options):
    engine = create_engine(
        EngineOptions(**{"model_paths": (str(tokenizer_dir),), "model_ids": ("m",), **options})
    )
    await engine.start()
    try:
        yield Bench(engine, Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json")))
    finally:
        await engine.stop()
