"""Where requests go: what callers say about it in headers and metadata reaches the policy."""

import pytest

from smg_proto.chat.v1 import chat_pb2
from tests.integration.running_router import running_router, until

BODY = {"model": "m", "messages": [{"role": "user", "content": "[[say:x]]"}]}


async def routed(gateway, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await gateway.http.post("/v1/chat/completions", json=BODY, headers=names)
    return answer.status_code, answer.headers.get("x-smg-routed-worker-id")


async def test_a_target_is_an_index_among_the_workers_and_none_beyond_them(echo_worker):
    urls = [await echo_worker(), await echo_worker()]
    async with running_router(*urls, routing={"policy": "consistent_hashing"}) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 2)
        for index, url in enumerate(urls):
            assert await routed(gateway, x_smg_target_worker=str(index)) == (200, url)
        for wrong in ("2", "-1", "x"):
            assert await routed(gateway, x_smg_target_worker=wrong) == (503, None)


@pytest.mark.parametrize("policy", ["consistent_hashing", "prefix_hash", "manual"])
async def test_a_routing_key_goes_to_one_worker_over_http_and_grpc(echo_worker, policy):
    urls = [await echo_worker() for _ in range(3)]
    async with running_router(*urls, routing={"policy": policy}) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 3)
        used = set()
        for number in range(12):
            _, url = await routed(gateway, x_smg_routing_key=f"key-{number}")
            used.add(url)
            assert await routed(gateway, x_smg_routing_key=f"key-{number}") == (200, url)
            before = {each: echo_worker.servers[each].engine.load() for each in urls}
            chat = {"model": "m", "messages": [{"role": "user", "text": "[[hang0:50]][[say:x]]"}]}
            call = gateway.chats.CreateChatCompletion(
                chat_pb2.CreateChatCompletionRequest(chat=chat),
                metadata=(("x-smg-routing-key", f"key-{number}"),),
            )
            await until(lambda: any(echo_worker.servers[each].engine.load().running for each in urls))
            assert echo_worker.servers[url].engine.load().running == before[url].running + 1
            await call
        assert len(used) > 1


async def test_a_key_over_its_limit_counts_as_none(echo_worker):
    async with running_router(await echo_worker(), routing={"policy": "manual"}) as gateway:
        assert (await routed(gateway, x_smg_routing_key="k" * 129))[0] == 200
