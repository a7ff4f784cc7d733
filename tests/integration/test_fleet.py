"""A router and its fleet on real sockets: workers found by file and by Kubernetes, breakers, workers that change."""

import json

from tests.integration.running_router import running_router, until
from tests.unit.smg.workers.discovery.kubernetes_double import KubernetesDouble, pod

BODY = {"model": "m", "messages": [{"role": "user", "content": "[[say:x]]"}]}
FAULT = {"model": "m", "messages": [{"role": "user", "content": "[[error:INTERNAL:broken]]"}]}
REFUSAL = {"model": "m", "messages": [{"role": "user", "content": "[[error:INVALID_ARGUMENT:no]]"}]}
BUSY = {"model": "m", "messages": [{"role": "user", "content": "[[error:RESOURCE_EXHAUSTED:full]]"}]}


async def test_a_router_without_workers_says_so_and_heals_when_a_file_names_one(echo_worker, tmp_path):
    path = tmp_path / "workers.yaml"
    discovery = {"discovery_file": str(path), "discovery_check_interval_secs": 0.05}
    async with running_router(discovery=discovery) as gateway:
        http, registry = gateway.http, gateway.router.registry
        models = await http.get("/v1/models")
        assert (models.status_code, models.text) == (503, "No models available")
        assert (await http.get("/readiness")).status_code == 503
        assert (await http.get("/health")).status_code == 200
        url = await echo_worker()
        path.write_text(json.dumps({"version": 1, "workers": [{"url": url, "labels": {"zone": "a"}}]}))
        assert await registry.wait_ready(20, "m")
        told = (await http.get("/workers")).json()["workers"][0]
        assert (told["url"], told["origin"], told["labels"]) == (url, "file", {"zone": "a"})
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        path.write_text("[]")
        await until(lambda: not registry.workers())
        assert (await http.get("/v1/models")).status_code == 503


async def test_pods_are_found_and_left_as_kubernetes_tells(echo_worker, tmp_path):
    server = KubernetesDouble()
    await server.start()
    url = await echo_worker()
    port = url.rpartition(":")[2]
    discovery = {
        "service_discovery": True,
        "selector": ("app=engine",),
        "kubernetes_api_url": server.url,
        "kubernetes_account_dir": str(tmp_path),
    }
    async with running_router(discovery=discovery) as gateway:
        registry = gateway.router.registry
        await server.until(server.watches)
        server.put(pod("a", "127.0.0.1", annotations={"smg.ai/worker-ports": port}))
        assert await registry.wait_ready(20, "m")
        worker = (await gateway.http.get("/workers")).json()["workers"][0]
        assert (worker["origin"], worker["labels"]["smg.ai/pod-name"]) == ("kubernetes", "a")
        assert (await gateway.http.post("/v1/chat/completions", json=BODY)).status_code == 200
        server.drop("uid-a")
        await until(lambda: not registry.workers())
    await server.stop()


async def test_failures_of_a_worker_open_its_breaker_and_nothing_else_does(echo_worker):
    breaker = {"cb_failure_threshold": 2, "cb_timeout_duration_secs": 600}
    retries = {"retry_max_retries": 1}
    async with running_router(await echo_worker(), breaker=breaker, retries=retries) as gateway:
        http = gateway.http

        async def ask(body, **options):
            return (await http.post("/v1/chat/completions", json=body, **options)).status_code

        assert [await ask(REFUSAL) for _ in range(5)] == [400] * 5
        assert [await ask(BUSY) for _ in range(5)] == [429] * 5
        assert [await ask(FAULT) for _ in range(2)] == [500] * 2
        refused = await http.post("/v1/chat/completions", json=BODY)
        assert (refused.status_code, refused.headers["x-smg-error-code"]) == (503, "no_available_workers")
        assert refused.headers["retry-after"] == "1"
        # The worker is healthy: the router is ready, and its model is listed.
        assert (await http.get("/readiness")).json() == {
            "status": "ready", "healthy_workers": 1, "total_workers": 1
        }  # fmt: skip
        assert (await http.get("/v1/models")).status_code == 200
        worker = (await http.get("/workers")).json()["workers"][0]
        assert (worker["is_healthy"], worker["circuit_breaker"]) == (True, "open")
        metrics = (await http.get("/metrics")).text
        assert f'smg_worker_cb_state{{worker="{worker["url"]}"}} 1.0' in metrics


async def test_a_server_that_returns_with_another_model_is_asked_for_that_one(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        http, registry = gateway.http, gateway.router.registry
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        await echo_worker.stop(url)
        await echo_worker(port=int(url.rpartition(":")[2]), model_ids=("other",))
        assert await registry.wait_ready(20, "other")
        refused = await http.post("/v1/chat/completions", json=BODY)
        assert (refused.status_code, refused.headers["x-smg-error-code"]) == (404, "model_not_found")
        assert (await http.post("/v1/chat/completions", json={**BODY, "model": "other"})).status_code == 200
        assert [model["id"] for model in (await http.get("/v1/models")).json()["data"]] == ["other"]


async def test_a_server_that_returns_with_another_tokenizer_has_it_read_again(
    echo_worker, thinking_tokenizer_dir
):
    url = await echo_worker()
    async with running_router(url) as gateway:
        http, registry = gateway.http, gateway.router.registry
        before = registry.card("m").tokenizer_sha256
        (picture,) = registry.snapshots("m")
        await echo_worker.stop(url)
        await until(lambda: not registry.snapshots("m"))
        port = int(url.rpartition(":")[2])
        await echo_worker(port=port, model_paths=(str(thinking_tokenizer_dir),))
        assert await registry.wait_ready(20, "m")
        assert registry.card("m").tokenizer_sha256 != before
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        served = await gateway.router.catalog.resolve("m")
        assert served.card.tokenizer_sha256 == registry.card("m").tokenizer_sha256
        # Policies know a restart by it, and forget what was cached there.
        assert registry.snapshots("m")[0].instance_id != picture.instance_id


async def test_a_fleet_with_two_tokenizers_answers_from_the_majority(echo_worker, thinking_tokenizer_dir):
    urls = [await echo_worker(), await echo_worker()]
    odd = await echo_worker(model_paths=(str(thinking_tokenizer_dir),))
    # Not by load: who gets which of equals is chance.
    async with running_router(odd, *urls, routing={"policy": "round_robin"}) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 2)
        workers = {each["url"]: each for each in (await gateway.http.get("/workers")).json()["workers"]}
        assert "tokenizer" in workers[odd]["reason"]
        answers = [await gateway.http.post("/v1/chat/completions", json=BODY) for _ in range(6)]
        assert {answer.headers["x-smg-routed-worker-id"] for answer in answers} == set(urls)


async def test_where_several_models_are_served_a_request_must_name_one(echo_worker):
    async with running_router(await echo_worker(), await echo_worker(model_ids=("other",))) as gateway:
        http, registry = gateway.http, gateway.router.registry
        assert await registry.wait_ready(20, "other")
        unnamed = {key: value for key, value in BODY.items() if key != "model"}
        for body in (unnamed, {**BODY, "model": ""}):
            refused = await http.post("/v1/chat/completions", json=body)
            assert refused.status_code in (400, 404), refused.text
            assert "model" in refused.json()["error"]["message"]
