"""The operator's paths over HTTP: workers come, are told about, and go; who may not ask is refused."""

import pytest

from smg_proto.admin.v1 import admin_pb2
from tests.integration.running_router import running_router, until

BODY = {"model": "m", "messages": [{"role": "user", "content": "[[say:x]]"}]}


async def test_a_worker_is_added_listed_relabelled_and_removed(echo_worker):
    async with running_router() as gateway:
        http = gateway.http
        nobody = (await http.get("/workers")).json()
        assert (nobody["workers"], nobody["total"], nobody["stats"]["healthy"]) == ([], 0, 0)
        url = await echo_worker()
        added = await http.post("/workers", json={"url": url, "labels": {"zone": "a"}})
        assert added.status_code == 202
        path = added.headers["location"]
        assert path == added.json()["location"] == f"/workers/{added.json()['worker_id']}"
        await until(lambda: gateway.router.registry.snapshots("m"))
        told = (await http.get(path)).json()
        assert (told["url"], told["model_id"], told["labels"]) == (url, "m", {"zone": "a"})
        assert (told["status"], told["is_healthy"]) == ("ready", True)
        assert (told["origin"], told["circuit_breaker"]) == ("api", "closed")
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        assert (await http.put(path, json={"labels": {"zone": "b"}})).status_code == 202
        assert (await http.get("/workers")).json()["workers"][0]["labels"] == {"zone": "b"}
        assert [snapshot.labels["zone"] for snapshot in gateway.router.registry.snapshots("m")] == ["b"]
        assert (await http.delete(path)).status_code == 202
        assert (await http.get(path)).status_code == 404
        assert (await http.get("/workers")).json()["total"] == 0


async def test_a_worker_that_drains_ends_its_work_first(echo_worker):
    url = await echo_worker(step_seconds=0.01)
    async with running_router(url) as gateway:
        worker_id = gateway.router.registry.workers()[0].id
        body = {**BODY, "messages": [{"role": "user", "content": "[[len:80]]"}], "stream": True}
        async with gateway.http.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            removed = await gateway.http.delete(f"/workers/{worker_id}")
            assert removed.status_code == 202
            assert (await gateway.http.get(f"/workers/{worker_id}")).json()["status"] == "draining"
            assert (await gateway.http.post("/v1/chat/completions", json=BODY)).status_code == 503
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        await until(lambda: not gateway.router.registry.workers())


async def test_a_worker_that_is_not_to_drain_is_cut_and_the_client_told(echo_worker):
    async with running_router(await echo_worker(step_seconds=0.01)) as gateway:
        worker_id = gateway.router.registry.workers()[0].id
        body = {**BODY, "messages": [{"role": "user", "content": "[[say:x]][[hang]]"}], "stream": True}
        async with gateway.http.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            await gateway.http.delete(f"/workers/{worker_id}", params={"drain": "false"})
            assert gateway.router.registry.workers() == ()
            rest = [line async for line in lines if line]
            assert "error" in rest[-2]
            assert rest[-1] == "data: [DONE]"


async def test_a_worker_is_taken_out_of_service_and_back_over_both_doors(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        http, worker_id = gateway.http, gateway.router.registry.workers()[0].id
        path = f"/workers/{worker_id}"
        assert (await http.put(path, json={"draining": 1})).status_code == 400
        assert (await http.put(path, json={"draining": True})).status_code == 202
        told = (await http.get(path)).json()
        assert (told["status"], told["is_healthy"], told["labels"]) == ("draining", False, {})
        refused = await http.post("/v1/chat/completions", json=BODY)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        back = admin_pb2.UpdateWorkerRequest(
            id=worker_id, labels=admin_pb2.Labels(values={"zone": "a"}), draining=False
        )
        worker = (await gateway.admin.UpdateWorker(back)).worker
        assert (worker.state, worker.labels["zone"]) == (admin_pb2.WORKER_STATE_READY, "a")
        assert (worker.origin, worker.breaker) == ("settings", "closed")
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        # What is not named stays as it is.
        assert (await http.put(path, json={})).status_code == 202
        assert (await http.get(path)).json()["labels"] == {"zone": "a"}


async def test_a_worker_is_used_for_the_named_models_alone(echo_worker):
    url = await echo_worker(
        model_ids=("m", "n"), model_paths=(str(echo_worker._tokenizer_dir), str(echo_worker._tokenizer_dir))
    )
    async with running_router() as gateway:
        await gateway.http.post("/workers", json={"url": url, "models": ["n"]})
        await until(lambda: gateway.router.registry.snapshots("n"))
        assert [model["id"] for model in (await gateway.http.get("/v1/models")).json()["data"]] == ["n"]
        assert (await gateway.http.post("/v1/chat/completions", json=BODY)).status_code == 404


async def test_loads_and_caches_of_all_workers(echo_worker):
    urls = [await echo_worker(), await echo_worker()]
    async with running_router(*urls) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 2)
        loads = (await gateway.http.get("/get_loads")).json()["workers"]
        assert [(load["worker"], load["load"], load["is_healthy"]) for load in loads] == [
            (url, 0, True) for url in urls
        ]
        rows = (await gateway.http.get("/loads")).json()["loads"]
        assert [(row["worker"], row["dp_rank"], row["num_running_reqs"]) for row in rows] == [
            (url, 0, 0) for url in urls
        ]
        flushed = await gateway.http.post("/flush_cache")
        assert flushed.status_code == 200
        assert (flushed.json()["status"], flushed.json()["workers_flushed"]) == ("success", 2)


async def test_a_worker_that_cannot_be_flushed_is_named():
    async with running_router() as gateway:
        added = (await gateway.http.post("/workers", json={"url": "grpc://127.0.0.1:1"})).json()
        flushed = await gateway.http.post("/flush_cache")
        assert flushed.status_code == 206
        assert flushed.json()["failed"].keys() == {added["worker_id"]}


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        (b"", 400, "BAD_REQUEST", "url"),
        (b"{", 400, "BAD_REQUEST", "JSON"),
        (b"[]", 400, "BAD_REQUEST", "object"),
        (b'{"url": 1}', 400, "BAD_REQUEST", "url"),
        (b'{"url": "not a url"}', 400, "BAD_REQUEST", "not a url"),
        (b'{"url": "grpc://h:1", "labels": 1}', 400, "BAD_REQUEST", "labels"),
        (b'{"url": "grpc://h:1", "labels": {"a": 1}}', 400, "BAD_REQUEST", "labels.a"),
        (b'{"url": "grpc://127.0.0.1:9"}', 409, "WORKER_ALREADY_EXISTS", "worker-1"),
        (b'{"url": "127.0.0.1:9"}', 409, "WORKER_ALREADY_EXISTS", "worker-1"),
        (b'{"url": "GRPC://127.0.0.1:9/"}', 409, "WORKER_ALREADY_EXISTS", "worker-1"),
        (b'{"url": "grpc://h:1", "worker_type": "prefill"}', 400, "BAD_REQUEST", "'prefill'"),
        (b'{"url": "grpc://h:1", "models": [""]}', 400, "BAD_REQUEST", "models"),
        (b'{"url": "grpc://h:1", "models": "m"}', 400, "BAD_REQUEST", "models"),
        (b'{"url": "grpc://h:1", "labels": false}', 400, "BAD_REQUEST", "labels"),
        (b'{"url": "grpc://h:1", "labels": 0}', 400, "BAD_REQUEST", "labels"),
        (b'{"url": "grpc://h:1", "labels": ""}', 400, "BAD_REQUEST", "labels"),
        (b'{"url": "grpc://h:1", "models": false}', 400, "BAD_REQUEST", "models"),
        (b'{"url": "grpc://h:1", "model_id": 0}', 400, "BAD_REQUEST", "models"),
        (b'{"url": "grpc://h:1", "worker_type": false}', 400, "BAD_REQUEST", "worker_type"),
    ],
    ids=[
        "empty",
        "broken",
        "array",
        "number",
        "no url",
        "labels",
        "label",
        "known",
        "known without a scheme",
        "known otherwise written",
        "kind",
        "no model",
        "model",
        "labels false",
        "labels zero",
        "labels text",
        "models false",
        "model id zero",
        "kind false",
    ],
)
async def test_bad_additions_are_refused(body, status, code, says):
    async with running_router() as gateway:
        gateway.router.registry.add("grpc://127.0.0.1:9")
        answer = await gateway.http.post(
            "/workers", content=body, headers={"content-type": "application/json"}
        )
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert says in answer.json()["error"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_an_unknown_worker_is_not_found(method):
    async with running_router() as gateway:
        answer = await gateway.http.request(method, "/workers/nobody", json={})
        assert (answer.status_code, answer.json()["code"]) == (404, "WORKER_NOT_FOUND")


async def test_only_the_gateways_own_key_administers(echo_worker):
    callers = {"api_key": "own", "tenant_api_key": ("red:tenant",)}
    async with running_router(await echo_worker(), callers=callers) as gateway:
        for method, path in (("GET", "/workers"), ("POST", "/flush_cache"), ("GET", "/get_loads")):
            for key, status in (("own", 200), ("tenant", 401), ("wrong", 401)):
                answer = await gateway.http.request(method, path, headers={"authorization": f"Bearer {key}"})
                assert answer.status_code == status
                assert status == 200 or answer.content == b""
        assert (await gateway.http.get("/loads")).status_code == 200
