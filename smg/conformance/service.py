"""The calls beside Session: Describe, GetTokenizer, GetLoad, FlushCache, health, reflection."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from smg.conformance.checking import check, check_each
from smg.conformance.worker import fetch_archive
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from smg.conformance.worker import Worker

SERVICE = "smg.engine.v1.EngineService"
MIB = 1024 * 1024


@check
async def describe_tells_what_a_router_needs(worker: Worker) -> None:
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


@check
async def the_tokenizer_comes_whole_and_its_checksum_is_the_fingerprint(worker: Worker) -> None:
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


@check
async def the_archive_is_the_same_every_time(worker: Worker) -> None:
    assert await fetch_archive(worker.stub) == await fetch_archive(worker.stub, worker.card.id)


@check
async def the_tokenizer_of_an_unknown_model_is_not_found(worker: Worker) -> None:
    try:
        await fetch_archive(worker.stub, "no-such-model")
    except grpc.aio.AioRpcError as error:
        refusal = error
    else:
        raise AssertionError("a tokenizer came")
    assert refusal.code() is grpc.StatusCode.NOT_FOUND
    assert "no-such-model" in (refusal.details() or "")


@check
async def the_load_counts_what_runs(worker: Worker) -> None:
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


@check_each({"server": ("",), "service": (SERVICE,)})
async def health_is_serving(worker: Worker, service: str) -> None:
    answer = await health_pb2_grpc.HealthStub(worker.channel).Check(
        health_pb2.HealthCheckRequest(service=service)
    )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@check
async def reflection_lists_the_service_and_knows_its_file(worker: Worker) -> None:
    # Its messages are made when the module is loaded.
    messages: Any = reflection_pb2

    async def ask() -> AsyncIterator[Any]:
        yield messages.ServerReflectionRequest(list_services="")
        yield messages.ServerReflectionRequest(file_containing_symbol=SERVICE)

    call = reflection_pb2_grpc.ServerReflectionStub(worker.channel).ServerReflectionInfo(ask())
    listed, file = [answer async for answer in call]
    names = {service.name for service in listed.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names
    assert any(b"smg.engine.v1" in each for each in file.file_descriptor_response.file_descriptor_proto)


@check
async def adapters_and_profiles_are_served_or_said_not_to_be(worker: Worker) -> None:
    refusals = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.FAILED_PRECONDITION)
    for ask in (
        lambda: worker.stub.UnloadLora(card_pb2.UnloadLoraRequest(name="no-such-adapter")),
        lambda: worker.stub.StopProfile(card_pb2.StopProfileRequest()),
    ):
        try:
            await ask()
        except grpc.aio.AioRpcError as error:
            refusal = error
        else:
            raise AssertionError("what is not there was ended")
        assert refusal.code() in refusals
        assert refusal.details()


@check
async def an_adapter_without_a_name_is_refused(worker: Worker) -> None:
    try:
        await worker.stub.LoadLora(card_pb2.LoadLoraRequest(path="/adapters/a"))
    except grpc.aio.AioRpcError as error:
        refusal = error
    else:
        raise AssertionError("it was loaded")
    assert refusal.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT)
