"""The engine under test, seen from outside: what it says of itself, and messages to send it."""

from __future__ import annotations

import asyncio
import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from smg.conformance.checking import NotOffered
from smg.conformance.session_client import UNIMPLEMENTED, Session, to_bytes
from smg_proto.engine.v1 import card_pb2, engine_pb2_grpc, work_pb2

if TYPE_CHECKING:
    import grpc.aio

IDLE_S = 30.0
"""Longest wait for an engine to have nothing to do."""


@dataclass
class Worker:
    """A worker that serves."""

    channel: Any
    stub: Any
    card: card_pb2.ModelCard
    description: card_pb2.DescribeResponse
    tokenizer: Tokenizer

    def session(self) -> Session:
        """A new session; `async with`."""
        return Session(self.stub)

    def need(self, capability: str) -> None:
        """Raise NotOffered when the model does not serve it."""
        if not getattr(self.card.capabilities, capability):
            raise NotOffered(f"{self.card.id} does not serve {capability}")

    def ids(self, text: str) -> list[int]:
        """Token ids of a text."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def generate(
        self, prompt: str | list[int] = "The capital of France is", **fields: Any
    ) -> work_pb2.Generate:
        """A Generate message, greedy and streamed unless told otherwise.

        Fields of Sampling may be given beside those of Generate.
        """
        prompt_ids = self.ids(prompt) if isinstance(prompt, str) else prompt
        sampling: dict[str, Any] = {
            name: fields.pop(name)
            for name in list(fields)
            if name in card_pb2.Sampling.DESCRIPTOR.fields_by_name
        }
        sampling = {"temperature": 0, "max_new_tokens": 8, **sampling}
        if sampling["max_new_tokens"] is None:
            del sampling["max_new_tokens"]
        return work_pb2.Generate(
            prompt_ids=to_bytes(prompt_ids),
            sampling=card_pb2.Sampling(**sampling),
            stream=fields.pop("stream", True),
            **fields,
        )

    async def load(self) -> card_pb2.Load:
        """The load now."""
        return (await self.stub.GetLoad(card_pb2.GetLoadRequest())).load

    async def flush(self) -> int:
        """Empty the prefix cache. Returns the number of tokens dropped."""
        return (await self.stub.FlushCache(card_pb2.FlushCacheRequest())).flushed_tokens

    async def wait_until_idle(self) -> None:
        """Wait until nothing runs or waits."""
        async with asyncio.timeout(IDLE_S):
            while (load := await self.load()).running or load.waiting:
                pass


async def meet(channel: grpc.aio.Channel) -> Worker:
    """Get to know the worker at the other end of a channel.

    Raises:
        grpc.aio.AioRpcError: it does not describe itself, or has no tokenizer to give.
    """
    stub: Any = engine_pb2_grpc.EngineServiceStub(channel)
    description = await stub.Describe(card_pb2.DescribeRequest())
    with zipfile.ZipFile(io.BytesIO(await fetch_archive(stub))) as files:
        tokenizer = Tokenizer.from_str(files.read("tokenizer.json").decode())
    return Worker(channel, stub, description.models[0], description, tokenizer)


async def fetch_archive(stub: Any, model: str = "") -> bytes:
    """The tokenizer archive of a model."""
    pieces = [piece.data async for piece in stub.GetTokenizer(card_pb2.GetTokenizerRequest(model=model))]
    return b"".join(pieces)


async def begins_late(worker: Worker, session: Session) -> bool:
    """Whether a form can begin after a text of the output; an engine that cannot says so."""
    form = work_pb2.Constraint(regex="[0-9]{3}", begins_after="never, ever")
    record = await session.run_one(worker.generate(max_new_tokens=1, constraint=form))
    return not (isinstance(record.end, work_pb2.Failed) and record.end.code == UNIMPLEMENTED)
