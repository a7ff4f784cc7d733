"""The worker that the contract suite runs on: one server per engine for the whole run, on a real socket."""

from __future__ import annotations

import asyncio
import io
import zipfile
from dataclasses import dataclass

import grpc.aio
import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from servicers.serve import start_server
from smg_proto.engine.v1 import card_pb2, engine_pb2_grpc, work_pb2
from tests.contract.servicers.launchers import LAUNCHERS
from tests.contract.servicers.session_client import UNIMPLEMENTED, Session, to_bytes

# All tests share the server's event loop.
ASYNC = pytest.mark.asyncio(loop_scope="session")


@dataclass
class ContractWorker:
    """A running worker, seen from outside."""

    url: str
    channel: grpc.aio.Channel
    stub: engine_pb2_grpc.EngineServiceStub
    card: card_pb2.ModelCard
    description: card_pb2.DescribeResponse
    tokenizer: Tokenizer

    def session(self) -> Session:
        return Session(self.stub)

    def need(self, capability: str) -> None:
        """Skip the test when the model does not serve it."""
        if not getattr(self.card.capabilities, capability):
            pytest.skip(f"{self.card.id} does not serve {capability}")

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def generate(self, prompt: str | list[int] = "The capital of France is", **fields) -> work_pb2.Generate:
        """A Generate message, greedy and streamed unless told otherwise.

        Fields of Sampling may be given beside those of Generate.
        """
        prompt_ids = self.ids(prompt) if isinstance(prompt, str) else prompt
        sampling = {
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
            **{"stream": True, **fields},
        )

    async def load(self) -> card_pb2.Load:
        return (await self.stub.GetLoad(card_pb2.GetLoadRequest())).load

    async def flush(self) -> int:
        return (await self.stub.FlushCache(card_pb2.FlushCacheRequest())).flushed_tokens

    async def wait_until_idle(self) -> None:
        """Wait until nothing runs or waits."""
        async with asyncio.timeout(10):
            while (load := await self.load()).running or load.waiting:
                pass


@pytest_asyncio.fixture(
    scope="session",
    loop_scope="session",
    params=[pytest.param(each, id=each.name or each.engine, marks=each.marks) for each in LAUNCHERS],
)
async def worker(request, tokenizer_dir):
    """A worker of each engine."""
    server = await start_server(request.param.create(tokenizer_dir))
    async with grpc.aio.insecure_channel(
        server.url.removeprefix("grpc://"), options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        stub = engine_pb2_grpc.EngineServiceStub(channel)
        description = await stub.Describe(card_pb2.DescribeRequest())
        archive = await fetch_archive(stub)
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            tokenizer = Tokenizer.from_str(files.read("tokenizer.json").decode())
        card = description.models[0]
        yield ContractWorker(server.url, channel, stub, card, description, tokenizer)
    await server.stop(0.0)


async def fetch_archive(stub, model: str = "") -> bytes:
    pieces = [piece.data async for piece in stub.GetTokenizer(card_pb2.GetTokenizerRequest(model=model))]
    return b"".join(pieces)


async def begins_late(worker: ContractWorker, session: Session) -> bool:
    """Whether a form can begin after a text of the output; an engine that cannot says so."""
    record = await session.run_one(
        worker.generate(
            max_new_tokens=1, constraint=work_pb2.Constraint(regex="[0-9]{3}", begins_after="never, ever")
        )
    )
    return not (isinstance(record.end, work_pb2.Failed) and record.end.code == UNIMPLEMENTED)
