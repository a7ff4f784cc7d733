"""`--also-serve sglang`: one server, two protocols, over a real engine; a client of SGLang's protocol sees what it knows."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from smg_grpc_proto.generated import common_pb2
from smg_grpc_proto.generated import sglang_scheduler_pb2 as pb
from smg_grpc_proto.generated import sglang_scheduler_pb2_grpc as pb_grpc
from tokenizers import Tokenizer

from servicers.base import EngineOptions
from servicers.factory import create_engine
from servicers.serve import start_server
from servicers.token_bytes import ids_to_bytes
from smg.workers.kv_blocks import KvBlocks
from smg_proto.engine.v1 import card_pb2, engine_pb2_grpc
from tests.contract.workers.engine_script import Changes

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def start(tokenizer_dir):
    engine = create_engine("echo", EngineOptions((str(tokenizer_dir),), ("tiny",), step_seconds=0.001))
    return await start_server(engine, speaks_sglang=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tokenizer_dir):
    server = await start(tokenizer_dir)
    yield server
    await server.stop(0)


@pytest_asyncio.fixture(loop_scope="module")
async def channel(server):
    async with grpc.aio.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return pb_grpc.SglangSchedulerStub(channel)


@pytest.fixture(scope="module")
def encode(tokenizer_dir):
    tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def request(ids, name="r", **fields):
    params = {"temperature": 0, "top_p": 1, "top_k": -1, "repetition_penalty": 1, "n": 1, "max_new_tokens": 6}
    params |= {
        key: fields.pop(key) for key in list(fields) if key in pb.SamplingParams.DESCRIPTOR.fields_by_name
    }
    return pb.GenerateRequest(
        request_id=name,
        tokenized=pb.TokenizedInput(input_ids=ids),
        sampling_params=pb.SamplingParams(**params),
        **{"stream": True, "logprob_start_len": -1, **fields},
    )


async def test_both_protocols_describe_the_same_model(stub, channel):
    ours = await engine_pb2_grpc.EngineServiceStub(channel).Describe(card_pb2.DescribeRequest())
    theirs = await stub.GetModelInfo(pb.GetModelInfoRequest())
    card = ours.models[0]
    assert (theirs.served_model_name, theirs.vocab_size) == (card.id, card.vocab_size)
    assert list(theirs.eos_token_ids) == list(card.eos_token_ids)
    server = await stub.GetServerInfo(pb.GetServerInfoRequest())
    assert server.server_args["max_running_requests"] == ours.max_running
    assert (await stub.HealthCheck(pb.HealthCheckRequest())).healthy


async def test_chunks_carry_each_token_once_and_the_end_repeats_the_last(stub, encode):
    ids = encode("[[say:one two three four five]]")
    responses = [each async for each in stub.Generate(request(ids, max_new_tokens=5))]
    chunks = [each.chunk for each in responses[:-1]]
    complete = responses[-1].complete
    assert [len(chunk.token_ids) for chunk in chunks] == [1] * 5
    assert [chunk.completion_tokens for chunk in chunks] == [1, 2, 3, 4, 5]
    assert list(complete.output_ids) == list(chunks[-1].token_ids)
    assert (complete.finish_reason, complete.completion_tokens) == ("length", 5)
    whole = [each async for each in stub.Generate(request(ids, max_new_tokens=5, stream=False))]
    assert len(whole) == 1
    assert list(whole[0].complete.output_ids) == [chunk.token_ids[0] for chunk in chunks]


async def test_choices_come_by_index(stub, encode):
    ids = encode("[[say:one two three]]")
    responses = [each async for each in stub.Generate(request(ids, n=3))]
    assert sorted(each.complete.index for each in responses if each.HasField("complete")) == [0, 1, 2]


async def test_prompt_logprobs_begin_with_a_position_without_a_number(stub, encode):
    ids = encode("one two three four")
    asked = request(ids, return_logprob=True, logprob_start_len=1, top_logprobs_num=2, max_new_tokens=1)
    first = await anext(aiter(stub.Generate(asked)))
    rows = first.chunk.input_logprobs
    assert [each.HasField("value") for each in rows.token_logprobs] == [False, *[True] * (len(ids) - 2)]
    assert list(rows.token_ids) == ids[1:]
    assert [len(each.token_ids) for each in rows.top_logprobs] == [0, *[2] * (len(ids) - 2)]
    assert len(first.chunk.output_logprobs.token_logprobs) == 1


async def test_labels_are_scored_without_generating(stub, encode):
    asked = request(
        encode("Is it?"), return_logprob=True, token_ids_logprob=[5, 6], max_new_tokens=0, stream=False
    )
    [response] = [each async for each in stub.Generate(asked)]
    [row] = response.complete.output_logprobs.token_ids_logprobs
    assert list(row.token_ids) == [5, 6]
    assert len(row.values) == 2
    assert not response.complete.output_ids


async def test_an_abort_by_name_ends_the_call_with_abort(stub, encode):
    call = stub.Generate(request(encode("[[hang]]"), name="a", max_new_tokens=500))
    responses = aiter(call)
    await anext(responses)
    assert (await stub.Abort(pb.AbortRequest(request_id="a"))).success
    *_, last = [each async for each in responses]
    assert last.complete.finish_reason == "abort"
    assert (await stub.Abort(pb.AbortRequest(request_id="never-heard-of"))).success


async def until_idle(stub):
    async with asyncio.timeout(10):
        while (load := (await stub.GetLoads(pb.GetLoadsRequest())).loads[0]).num_total_reqs:
            pass
    return load


@pytest.mark.parametrize("deadline_s", [None, 0.05])
async def test_a_client_that_leaves_or_whose_deadline_passes_frees_the_engine(stub, encode, deadline_s):
    call = stub.Generate(request(encode("[[hang]]"), max_new_tokens=500), timeout=deadline_s)
    if deadline_s is None:
        await anext(aiter(call))
        call.cancel()
    else:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            [each async for each in call]
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until_idle(stub)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"temperature": 3}, "sampling.temperature is 3"),
        ({"return_hidden_states": True}, "return_hidden_states is set"),
        ({"mm_inputs": pb.MultimodalInputs(image_urls=["x"])}, "mm_inputs is set"),
        ({"logit_bias": {"x": 1.0}}, "logit_bias has the key 'x'"),
        ({"lora_id": "nobody"}, "lora is 'nobody'"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(stub, fields, words):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [each async for each in stub.Generate(request([1, 2], **fields))]
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in caught.value.details()


async def test_embeddings_and_their_faults(stub):
    answer = await stub.Embed(pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=[4, 5])))
    assert len(answer.embedding) == answer.embedding_dim == 32
    assert answer.prompt_tokens == 2
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Embed(pb.EmbedRequest())
    assert "input_ids is empty" in caught.value.details()


async def test_the_operators_calls(stub):
    assert (await stub.FlushCache(common_pb2.FlushCacheRequest())).success
    assert not (await stub.ListLoadedLoRAAdapters(pb.ListLoadedLoRAAdaptersRequest())).loaded_adapters
    for ask in (
        lambda: stub.StartProfile(common_pb2.StartProfileRequest()),
        lambda: stub.StopProfile(common_pb2.StopProfileRequest()),
        lambda: stub.LoadLoRAAdapter(pb.LoadLoRAAdapterRequest(lora_name="a", lora_path="/a")),
        lambda: stub.UnloadLoRAAdapter(pb.UnloadLoRAAdapterRequest(lora_name="a")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask()
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_drain_lets_what_runs_end_and_refuses_what_is_new(tokenizer_dir, encode):
    server = await start(tokenizer_dir)
    async with grpc.aio.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        stub = pb_grpc.SglangSchedulerStub(channel)
        responses = aiter(stub.Generate(request(encode("[[hang]]"), name="runs", max_new_tokens=900)))
        await anext(responses)
        stopping = asyncio.create_task(server.stop(20))
        async with asyncio.timeout(10):
            while (await stub.HealthCheck(pb.HealthCheckRequest())).healthy:
                pass
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            [each async for each in stub.Generate(request([1, 2]))]
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        # It goes on until it ends.
        await anext(responses)
        await stub.Abort(pb.AbortRequest(request_id="runs"))
        *_, last = [each async for each in responses]
        assert last.complete.finish_reason == "abort"
        await stopping


async def test_what_the_cache_holds_is_told_in_blocks_and_our_own_client_reads_them(server, stub, encode):
    ids = (encode("A river runs through the old town, and over it a bridge of stone. ") * 9)[:100]
    blocks, told, changes = KvBlocks(1000), [], Changes()
    call = stub.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest())

    async def follow():
        async for batch in call:
            told.extend(blocks.take(batch))
            changes.notify()

    async def until(is_so):
        async with asyncio.timeout(20):
            while not any(map(is_so, told)):
                # Until the subscription is there nothing is told of it.
                [_ async for _ in stub.Generate(request(ids, max_new_tokens=1))]

    following = asyncio.create_task(follow())
    prefix = ids_to_bytes(ids[:96])
    await stub.FlushCache(common_pb2.FlushCacheRequest())
    await until(lambda change: any(prefix.startswith(each.ids) for each in change.stored_prefixes))
    before = len(told)
    await stub.FlushCache(common_pb2.FlushCacheRequest())
    async with asyncio.timeout(20):
        await changes.until(lambda: any(change.cleared for change in told[before:]))
    assert len(blocks) == 0
    call.cancel()
    await asyncio.wait([following])


async def test_a_subscription_cannot_begin_in_the_past(stub):
    call = stub.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest(start_sequence_number=7))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [each async for each in call]
    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
