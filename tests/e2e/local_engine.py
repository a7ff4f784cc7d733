"""The local engine on the default model, for tests: float32, one thread, requests in and a finished session out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from servicers.local.checkpoint import find_default_model
from servicers.local.settings import LocalSettings
from smg_proto.engine.v1 import engine_pb2
from tests.unit.servicers.local.stepping import Session, from_bytes

if TYPE_CHECKING:
    from servicers.local.engine import LocalEngine

SETTINGS = LocalSettings(
    model_path=find_default_model(), dtype="fp32", threads=1, max_context=1536, max_running=9, step_tokens=256
)
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
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


class Client:
    """A router in the same loop."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        directory = engine.tokenizer_dir("")
        assert directory is not None
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))

    def chat(self, text: str) -> list[int]:
        return self.ids(TURN.format(text))

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids)

    def submit(self, session: Session, *generates, **lists) -> None:
        self.engine.submit(session, engine_pb2.SessionRequest(generate=generates, **lists))

    async def run(self, *generates, **lists) -> Session:
        """Submit everything together and wait for every end."""
        session = Listener()
        self.submit(session, *generates, **lists)
        wanted = {each.sequence for items in (generates, *lists.values()) for each in items}
        await session.until(lambda: session.ended >= wanted)
        self.engine.close(session)
        return session

    async def tokens(self, *generates) -> list[list[int]]:
        """Output of each, streamed or not."""
        session = await self.run(*generates)
        assert not session.failed, session.failed
        return [
            session.tokens[each.sequence] or from_bytes(session.finished[each.sequence].token_ids)
            for each in generates
        ]


class Listener(Session):
    """A session that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        super().emit(event)
        self._changed.set()

    async def until(self, is_true) -> None:
        while not is_true():
            self._changed.clear()
            await self._changed.wait()
