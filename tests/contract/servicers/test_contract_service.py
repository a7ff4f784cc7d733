"""The calls beside Session: Describe, GetTokenizer, GetLoad, FlushCache, health, reflection."""

from __future__ import annotations

import hashlib
import io
import zipfile

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from smg_proto.engine.v1 import card_pb2
from tests.contract.servicers.conftest import fetch_archive

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVICE = "smg.engine.v1.EngineService"
MIB = 1024 * 1024


async def test_describe_tells_what_a_router_needs(worker):
    card = worker.card
    assert card.id
    assert card.vocab_size > 0
    assert card.eos_token_ids
    assert all(token < card.vocab_size for token in card.eos_token_ids)
    assert card.vocab_size >= worker.tokenizer.get_vocab_size()
    assert card.capabilities.generate or card.capabilities.embed or card.capabilities.classify
    assert card.capabilities.embed == bool(card.embedding_size)
    assert card.capabilities.classify == bool(card.labels)
    assert len({each.id for each in worker.description.models}) == len(worker.description.models)
    assert worker.description.engine
    assert worker.description.instance_id


async def test_the_tokenizer_comes_whole_and_its_checksum_is_the_fingerprint(worker):
    pieces = [
        piece async for piece in worker.stub.GetTokenizer(card_pb2.GetTokenizerRequest(model=worker.card.id))
    ]
    data = b"".join(piece.data for piece in pieces)
    assert all(len(piece.data) <= MIB for piece in pieces)
    assert [piece.sha256 for piece in pieces[:-1]] == [""] * (len(pieces) - 1)
    assert pieces[-1].sha256 == hashlib.sha256(data).hexdigest() == worker.card.tokenizer_sha256
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    assert "tokenizer.json" in names
    assert all("/" not in name for name in names)


async def test_the_archive_is_the_same_every_time(worker):
    assert await fetch_archive(worker.stub) == await fetch_archive(worker.stub, worker.card.id)


async def test_the_tokenizer_of_an_unknown_model_is_not_found(worker):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await fetch_archive(worker.stub, "no-such-model")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "no-such-model" in caught.value.details()


async def test_the_load_counts_what_runs(worker):
    await worker.wait_until_idle()
    async with worker.session() as session:
        before = await worker.load()
        records = await session.start(
            *(worker.generate(max_new_tokens=2000, ignore_eos=True) for _ in range(3))
        )
        for record in records:
            await session.wait_for_tokens(record)
        load = await worker.load()
        assert load.running + load.waiting == 3
        assert load.steps > before.steps
        assert 0 < load.kv_used_tokens <= load.kv_capacity_tokens or not load.kv_capacity_tokens
        for record in records:
            await session.abort(record)
        await session.wait(*records)
    await worker.wait_until_idle()


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_health_is_serving(worker, service):
    answer = await health_pb2_grpc.HealthStub(worker.channel).Check(
        health_pb2.HealthCheckRequest(service=service)
    )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_lists_the_service_and_knows_its_file(worker):
    async def ask():
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        yield reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)

    call = reflection_pb2_grpc.ServerReflectionStub(worker.channel).ServerReflectionInfo(ask())
    listed, file = [answer async for answer in call]
    names = {service.name for service in listed.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names
    assert any(b"smg.engine.v1" in each for each in file.file_descriptor_response.file_descriptor_proto)
