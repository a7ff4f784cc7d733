"""Where requests go: what callers say about it in headers and metadata reaches the policy."""

import asyncio
import contextlib

import grpc
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


@pytest.mark.parametrize("policy", ["round_robin", "manual", "consistent_hashing", "cache_aware"])
async def test_the_turns_of_a_conversation_go_to_one_worker_by_their_rid(echo_worker, policy):
    urls = [await echo_worker() for _ in range(3)]
    routing = {"policy": policy, "routing_key_override": True}
    async with running_router(*urls, routing=routing) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 3)
        homes = set()
        for number in range(16):  # all of them at one home by chance: once in 3 ** 15
            used = set()
            for rid in (f"talk{number}_t1", f"talk{number}_t2", f"talk{number}_t2_r1"):
                # The rid comes before the header.
                answer = await gateway.http.post(
                    "/v1/chat/completions", json=BODY | {"rid": rid}, headers={"x-smg-routing-key": rid}
                )
                used.add(answer.headers["x-smg-routed-worker-id"])
            assert len(used) == 1
            homes |= used
        assert len(homes) > 1


async def test_the_key_may_come_in_other_headers_the_first_that_counts(echo_worker):
    urls = [await echo_worker() for _ in range(3)]
    routing = {"policy": "manual", "routing_key_headers": ("x-session", "x-smg-routing-key")}
    async with running_router(*urls, routing=routing) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 3)
        for number in range(8):
            _, url = await routed(gateway, x_session=f"s{number}")
            assert await routed(gateway, x_smg_routing_key=f"s{number}") == (200, url)
            assert await routed(gateway, x_session="s" * 200, x_smg_routing_key=f"s{number}") == (200, url)


async def test_who_asks_is_told_why_a_worker_was_picked_over_http_and_grpc(echo_worker):
    url = await echo_worker()
    async with running_router(url, routing={"policy": "cache_aware"}) as gateway:
        for body in (BODY, BODY | {"stream": True}):
            answer = await gateway.http.post(
                "/v1/chat/completions", json=body, headers={"x-smg-explain-routing": "1"}
            )
            assert answer.headers["x-smg-routing-reason"].startswith("least busy, prompt not cached")
            answer = await gateway.http.post("/v1/chat/completions", json=body)
            assert "x-smg-routing-reason" not in answer.headers
        call = gateway.chats.CreateChatCompletion(
            chat_pb2.CreateChatCompletionRequest(
                chat={"model": "m", "messages": [{"role": "user", "text": "[[say:x]]"}]}
            ),
            metadata=(("x-smg-explain-routing", "true"),),
        )
        await call
        trailing = dict(await call.trailing_metadata())
        assert trailing["x-smg-routed-worker-id"] == url
        assert trailing["x-smg-routing-reason"]


@pytest.mark.parametrize("tokens", ["1,2,3", "1, 2", "", "-1", "x" * 5000, "1," * 600, "99999999999"])
async def test_routing_tokens_never_fail_a_request(echo_worker, tokens):
    async with running_router(await echo_worker(), routing={"policy": "cache_aware"}) as gateway:
        assert (await routed(gateway, x_smg_routing_tokens=tokens))[0] == 200


async def held(gateway):
    """A request that runs for ever."""
    body = BODY | {"messages": [{"role": "user", "content": "[[say:a]][[hang]]"}], "stream": True}
    return asyncio.create_task(gateway.http.post("/v1/chat/completions", json=body))


async def left(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_full_router_tells_so_whatever_the_body_and_serves_what_is_not_admitted(echo_worker):
    admission = {"max_concurrent_requests": 1, "queue_size": 0}
    async with running_router(await echo_worker(), admission=admission) as gateway:
        running = await held(gateway)
        await until(lambda: gateway.router.admission.running == 1)
        for path, body in (("/v1/chat/completions", b"no json"), ("/v1/completions", b"{}")):
            answer = await gateway.http.post(path, content=body)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
            assert answer.headers["x-smg-error-code"] == "admission_queue_full"
            assert answer.json()["error"]["code"] == "admission_queue_full"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await gateway.chats.CreateChatCompletion(chat_pb2.CreateChatCompletionRequest())
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for path in (
            "/v1/models",
            "/health",
            "/liveness",
            "/readiness",
            "/workers",
            "/get_loads",
            "/metrics",
        ):
            assert (await gateway.http.get(path)).status_code == 200
        await left(running)
        await until(lambda: gateway.router.admission.running == 0)


async def test_a_client_that_leaves_the_queue_makes_room(echo_worker):
    admission = {"max_concurrent_requests": 1, "queue_size": 1}
    async with running_router(await echo_worker(), admission=admission) as gateway:
        running = await held(gateway)
        await until(lambda: gateway.router.admission.running == 1)
        waiting = await held(gateway)
        await until(lambda: gateway.router.admission.waiting == 1)
        await left(waiting)
        await until(lambda: gateway.router.admission.waiting == 0)
        another = await held(gateway)
        await until(lambda: gateway.router.admission.waiting == 1)
        for task in (running, another):
            await left(task)
        await until(lambda: gateway.router.admission.running == 0)


async def test_who_waits_too_long_in_the_queue_is_told(echo_worker):
    admission = {"max_concurrent_requests": 1, "queue_size": 1, "queue_timeout_secs": 0.05}
    async with running_router(await echo_worker(), admission=admission) as gateway:
        running = await held(gateway)
        await until(lambda: gateway.router.admission.running == 1)
        answer = await gateway.http.post("/v1/chat/completions", json=BODY | {"stream": True})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert answer.json()["error"]["code"] == "admission_queue_timeout"
        chat = {"model": "m", "messages": [{"role": "user", "text": "[[say:x]]"}]}
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await gateway.chats.CreateChatCompletion(chat_pb2.CreateChatCompletionRequest(chat=chat))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        await left(running)
        await until(lambda: gateway.router.admission.running == 0)


async def test_workers_with_too_long_a_queue_get_nothing_more_and_if_all_have_requests_are_shed(echo_worker):
    urls = [await echo_worker(max_running=1), await echo_worker(max_running=1)]
    overload = {"worker_overload_waiting_requests": 1, "worker_overload_shed": True}
    async with running_router(*urls, routing={"policy": "round_robin"}, overload=overload) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 2)
        loads = [each.load for each in gateway.router.registry.workers()]
        running = []
        for waiting in (0, 1, 2):
            # One more request waits at some worker, and from then on it gets no more.
            while sum(bool(load.waiting) for load in loads) < waiting:
                running.append(await held(gateway))
                count = len(running)
                await until(
                    lambda count=count: sum(each.inflight_requests for each in workers_of(gateway)) == count
                )
                await until(lambda count=count: sum(load_of(each) for each in workers_of(gateway)) == count)
                loads = [each.load for each in workers_of(gateway)]
        answer = await gateway.http.post("/v1/chat/completions", json=BODY)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert answer.headers["x-smg-error-code"] == "worker_overload_protection_shed"
        assert [load.waiting for load in loads] == [1, 1]
        for task in running:
            await left(task)


def workers_of(gateway):
    return gateway.router.registry.workers()


def load_of(entry):
    return entry.load.running + entry.load.waiting


async def test_what_engines_tell_of_their_caches_steers_until_they_forget_or_restart(echo_worker):
    urls = [await echo_worker() for _ in range(3)]
    ids = [300 + number % 50 for number in range(1200)]
    async with running_router(*urls, routing={"policy": "cache_aware"}) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 3)

        async def reason():
            body = {"model": "m", "prompt": ids, "max_tokens": 1}
            answer = await gateway.http.post(
                "/v1/completions", json=body, headers={"x-smg-explain-routing": "1"}
            )
            return answer.headers["x-smg-routed-worker-id"], answer.headers["x-smg-routing-reason"]

        # Another router warms one of the engines.
        async with running_router(urls[1]) as other:
            await other.http.post("/v1/completions", json={"model": "m", "prompt": ids, "max_tokens": 1})
        index = gateway.router.policy._index
        await until(lambda: len(index) > 0)
        url, why = await reason()
        assert url == urls[1]
        assert "of the prompt cached" in why
        await gateway.http.post("/flush_cache")
        await until(lambda: not gateway.router.policy._holders)
        assert "not cached" in (await reason())[1]
