"""What an operator sees of requests: metrics, Server-Timing, the access log, traces at a collector."""

import asyncio
import json
import logging
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from smg.telemetry.logs import LineFormatter
from smg_proto.admin.v1 import admin_pb2
from smg_proto.chat.v1 import chat_pb2, message_pb2
from tests.integration.running_router import outcome, running_router, until

BODY = {"model": "m", "messages": [{"role": "user", "content": "[[say:one two three four]]"}]}
CHAT = "/v1/chat/completions"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
PHASE = re.compile(r"(\w+);dur=(\d+\.\d{3})")


def create(text):
    message = message_pb2.ChatMessage(role="user", text=text)
    return chat_pb2.CreateChatCompletionRequest(chat=chat_pb2.ChatRequest(model="m", messages=[message]))


async def metrics_of(gateway):
    lines = (await gateway.http.get("/metrics")).text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def phases(answer):
    found = PHASE.findall(answer.headers["server-timing"])
    assert ", ".join(f"{name};dur={value}" for name, value in found) == answer.headers["server-timing"]
    return {name: float(value) for name, value in found}


async def test_what_a_request_did_is_in_the_metrics(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        assert (await gateway.http.post(CHAT, json=BODY)).status_code == 200
        assert (await gateway.http.post(CHAT, json={**BODY, "model": "invented"})).status_code == 404
        await gateway.chats.CreateChatCompletion(create("[[say:x]]"))
        told = await metrics_of(gateway)
    for route in ("chat", "grpc_chat"):
        assert told[f'smg_requests_total{{model="m",outcome="ok",route="{route}"}}'] == 1
        assert told[f'smg_time_to_first_token_seconds_count{{model="m",route="{route}"}}'] == 1
        assert told[f'smg_requests_inflight{{model="m",route="{route}"}}'] == 0
    assert told['smg_http_responses_total{route="chat",status="404"}'] == 1
    assert told['smg_errors_total{code="model_not_found",route="chat"}'] == 1
    assert told[f'smg_worker_picks_total{{worker="{url}"}}'] == 2
    assert told[f'smg_worker_connections_total{{worker="{url}"}}'] == 1
    assert told[f'smg_worker_state{{state="ready",worker="{url}"}}'] == 1
    assert told["smg_admission_running"] == 0
    assert not [name for name in told if "invented" in name]


async def test_who_is_not_let_in_is_counted(echo_worker):
    url = await echo_worker(step_seconds=0.01)
    full = {"max_concurrent_requests": 1, "queue_size": 0}
    async with running_router(url, admission=full) as gateway:
        long = {**BODY, "stream": True, "messages": [{"role": "user", "content": "[[say:x]][[hang]]"}]}
        async with gateway.http.stream("POST", CHAT, json=long) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            assert (await gateway.http.post(CHAT, json=BODY)).status_code == 429
            told = await metrics_of(gateway)
        assert told["smg_admission_running"] == 1
        assert told['smg_admission_rejections_total{reason="queue_full"}'] == 1
        # The client of the stream has left: its work was aborted, and that is told apart.
        await until(lambda: gateway.router.admission.running == 0)
        told = await metrics_of(gateway)
        assert told['smg_requests_total{model="m",outcome="client_gone",route="chat"}'] == 1


async def test_a_lost_worker_counts_as_a_failover_and_a_new_connection(echo_worker):
    first, second = await echo_worker(step_seconds=0.01), await echo_worker(step_seconds=0.01)
    async with running_router(first, second, routing={"policy": "round_robin"}) as gateway:
        await until(lambda: len(gateway.router.registry.snapshots("m")) == 2)
        long = {**BODY, "stream": True, "messages": [{"role": "user", "content": "[[len:80]]"}]}
        async with gateway.http.stream("POST", CHAT, json=long) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            await echo_worker.stop(stream.headers["x-smg-routed-worker-id"])
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        told = await metrics_of(gateway)
    assert told['smg_failovers_total{model="m",route="chat"}'] == 1
    assert sum(value for name, value in told.items() if name.startswith("smg_worker_picks_total")) == 2


async def test_answers_tell_what_took_how_long(echo_worker):
    url = await echo_worker(step_seconds=0.005)
    async with running_router(url) as gateway:
        whole = phases(await gateway.http.post(CHAT, json=BODY))
        assert list(whole) == ["queue", "parse", "tokenize", "first_token", "decode", "total"]
        assert whole["total"] == pytest.approx(sum(whole.values()) - whole["total"], abs=0.01)
        assert whole["decode"] > 0
        stream = await gateway.http.post(CHAT, json={**BODY, "stream": True})
        assert list(phases(stream)) == ["queue", "parse", "tokenize", "first_token"]
        completion = await gateway.http.post("/v1/completions", json={"model": "m", "prompt": "[[say:x]]"})
        assert phases(completion)["total"] > 0
        broken = await gateway.http.post(CHAT, content=b"{")
        assert (broken.status_code, list(phases(broken))) == (400, ["queue", "total"])
        unknown = await gateway.http.post(CHAT, json={**BODY, "model": "x"})
        assert (unknown.status_code, list(phases(unknown))) == (404, ["queue", "parse", "total"])
    async with running_router(url, telemetry={"server_timing": False}) as gateway:
        assert "server-timing" not in (await gateway.http.post(CHAT, json=BODY)).headers
        assert "server-timing" not in (await gateway.http.post(CHAT, content=b"{")).headers
    async with running_router(url, callers={"api_key": "k-1"}) as gateway:
        refused = await gateway.http.post(CHAT, json=BODY)
        assert (refused.status_code, list(phases(refused))) == (401, ["total"])


async def test_the_access_log_tells_of_every_request_and_of_no_secret(echo_worker, caplog):
    url = await echo_worker()
    keys = {"api_key": "shared-key-1", "tenant_api_key": ("acme:tenant-key-2",)}
    caplog.set_level(logging.INFO, logger="smg.access")
    async with running_router(url, callers=keys, telemetry={"access_log": True}) as gateway:
        key = {"authorization": "Bearer tenant-key-2"}
        secret = {**BODY, "messages": [{"role": "user", "content": "[[say:my secret]] more secret"}]}
        await gateway.http.post(CHAT, json=secret, headers={**key, "x-correlation-id": "mine-1"})
        await gateway.http.post(CHAT, json=secret)
        await gateway.http.get("/nowhere/at/all?key=tenant-key-2", headers=key)
        call = gateway.chats.CreateChatCompletion(
            create("[[say:secret]]"),
            metadata=(("authorization", "Bearer shared-key-1"), ("request-id", "mine-2")),
        )
        await call
        await outcome(gateway.admin.ListWorkers(admin_pb2.ListWorkersRequest()))
        await until(lambda: len([each for each in caplog.records if each.name == "smg.access"]) == 5)
    lines = [json.loads(LineFormatter(as_json=True).format(each)) for each in caplog.records]
    by_id = {line["request_id"]: line for line in lines if line["logger"] == "smg.access"}
    mine = by_id["mine-1"]
    assert (mine["method"], mine["route"], mine["status"], mine["tenant"]) == ("POST", "chat", 200, "acme")
    assert (mine["worker"], mine["model"], mine["attempts"]) == (url, "m", 1)
    assert mine["completion_tokens"] > 0
    assert mine["first_token_ms"] <= mine["duration_ms"]
    over_grpc = by_id["mine-2"]
    assert (over_grpc["route"], over_grpc["code"], over_grpc["worker"]) == ("grpc_chat", 0, url)
    told = sorted((line["route"], line.get("status", line.get("code"))) for line in by_id.values())
    assert told == [("chat", 200), ("chat", 401), ("grpc_admin", 16), ("grpc_chat", 0), ("unknown", 404)]
    everything = json.dumps(lines)
    assert "secret" not in everything
    assert "-key-" not in everything


@contextmanager
def collector():
    """A gRPC server that takes what an OpenTelemetry collector takes, on a free port; yields port and requests."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as services

    class Collector(services.TraceServiceServicer):
        def Export(self, request, context):
            taken.append(request)
            return messages.ExportTraceServiceResponse()

    taken: list[messages.ExportTraceServiceRequest] = []
    server = grpc.server(ThreadPoolExecutor(1))
    services.add_TraceServiceServicer_to_server(Collector(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port, taken
    finally:
        server.stop(None).wait()


async def test_traces_reach_a_collector_and_workers_get_the_context(echo_worker, monkeypatch):
    seen, states = [], []
    url = await echo_worker()
    with collector() as (port, taken):
        telemetry = {"enable_trace": True, "otlp_traces_endpoint": f"127.0.0.1:{port}"}
        async with running_router(url, telemetry=telemetry) as gateway:
            worker = gateway.router.registry.workers()[0].worker
            generate = worker.generate_choices
            monkeypatch.setattr(
                worker,
                "generate_choices",
                lambda requests, listeners: (
                    seen.append(requests[0].traceparent),
                    states.append(requests[0].tracestate),
                    generate(requests, listeners),
                )[-1],
            )
            await gateway.http.post(CHAT, json=BODY, headers={"traceparent": PARENT, "tracestate": "v=1"})
            await gateway.chats.CreateChatCompletion(create("[[say:x]]"), metadata=(("traceparent", PARENT),))
            await gateway.http.post(CHAT, json=BODY, headers={"traceparent": PARENT[:-1] + "0"})
        # The router has stopped: what was waiting has been sent.
    spans = [
        span
        for each in taken
        for of in each.resource_spans
        for scope in of.scope_spans
        for span in scope.spans
    ]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    names = sorted(span.name for span in spans)
    assert names == sorted(["chat", "grpc_chat", *2 * ["engine", "queue", "tokenize"]])
    engines = {span.span_id.hex() for span in spans if span.name == "engine"}
    assert {each.split("-")[2] for each in seen[:2]} == engines
    assert [each.split("-")[1] for each in seen] == [TRACE] * 3
    assert states == ["v=1", "", ""]
    assert [each[-2:] for each in seen] == ["01", "01", "00"], "who does not record tells workers so"


async def test_a_collector_that_is_not_there_harms_nobody(echo_worker):
    url = await echo_worker()
    telemetry = {"enable_trace": True, "otlp_traces_endpoint": "127.0.0.1:1"}
    async with running_router(url, telemetry=telemetry) as gateway:
        answers = await asyncio.gather(*[gateway.http.post(CHAT, json=BODY) for _ in range(20)])
        assert {answer.status_code for answer in answers} == {200}
        assert "smg_trace_spans_dropped_total" in await metrics_of(gateway)


def test_without_the_flag_nothing_of_opentelemetry_is_imported():
    code = (
        "import sys; from smg.server import Router; from smg.settings import RouterSettings; "
        "from smg.cli import launch; assert not [each for each in sys.modules if 'opentelemetry' in each]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
