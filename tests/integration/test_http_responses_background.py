"""Responses in the background: they survive their client, are stopped, and their events can be followed later."""

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import orjson
import pytest

from benchmarks.faults.fleet import start_gateway
from benchmarks.gateway.children import Children
from smg.storage.records import StoredResponse
from tests.integration.running_router import running_router, until
from tests.unit.smg.responses.replaying import replayed

URL = "/v1/responses"
ON = {"max_background_responses": 2}


def body(given, **fields):
    return {"model": "m", "input": given, "background": True, **fields}


def events_in(raw):
    frames = [frame.split("\n", 1) for frame in raw.split("\n\n") if frame]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in frames]


async def ended(http, response_id):
    while True:
        found = (await http.get(f"{URL}/{response_id}")).json()
        if found["status"] not in ("queued", "in_progress"):
            return found
        await asyncio.sleep(0.01)


async def test_it_runs_without_its_client_and_is_found_in_every_state(echo_worker):
    async with running_router(await echo_worker(), history=ON) as gateway:
        http = gateway.http
        conversation = (await http.post("/v1/conversations", json={})).json()["id"]
        made = (await http.post(URL, json=body("[[say:done]]", conversation=conversation))).json()
        assert (made["status"], made["background"], made["output"]) == ("queued", True, [])
        found = await ended(http, made["id"])
        items = (await http.get(f"/v1/conversations/{conversation}/items")).json()["data"]
    assert (found["status"], found["output"][0]["content"][0]["text"]) == ("completed", "done")
    assert found["completed_at"] >= made["created_at"]
    assert len(items) == 2


async def test_a_stream_that_was_left_is_followed_from_any_event_on(echo_worker):
    async with running_router(await echo_worker(), history=ON) as gateway:
        http = gateway.http
        seen = []
        async with http.stream("POST", URL, json=body("[[len:30]][[delay:5]]", stream=True)) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line[6:]))
                    if len(seen) == 8:
                        break
        response_id = seen[0]["response"]["id"]
        rest = events_in((await http.get(f"{URL}/{response_id}?stream=true&starting_after=7")).text)
        everything = events_in((await http.get(f"{URL}/{response_id}?stream=true")).text)
        stored = (await http.get(f"{URL}/{response_id}")).json()
    assert [kind for kind, _ in everything[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert rest[0][1]["sequence_number"] == 8
    assert seen + [event for _, event in rest] == [event for _, event in everything]
    state = replayed(everything)
    assert state.items == state.ended["output"]
    assert stored["status"] == state.ended["status"] == "completed"


@pytest.mark.parametrize("stream", [False, True])
async def test_it_can_be_stopped_and_keeps_what_there_was(echo_worker, stream):
    url = await echo_worker()
    async with running_router(url, history=ON) as gateway:
        http = gateway.http
        if stream:
            async with http.stream("POST", URL, json=body("[[hang]]", stream=True)) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        event = json.loads(line[6:])
                        if event["type"] == "response.created":
                            response_id = event["response"]["id"]
                        if event["type"] == "response.output_text.delta":
                            break
        else:
            response_id = (await http.post(URL, json=body("[[hang]]"))).json()["id"]
            await until(lambda: echo_worker.servers[url].engine.load().running)
        stopped = (await http.post(f"{URL}/{response_id}/cancel")).json()
        again = (await http.post(f"{URL}/{response_id}/cancel")).json()
        await until(lambda: not echo_worker.servers[url].engine.load().running)
        assert gateway.router.background.size == gateway.router.admission.running == 0
        if stream:
            replayed(events_in((await http.get(f"{URL}/{response_id}?stream=true")).text))
            assert stopped["output"][0]["status"] == "in_progress"
    assert stopped["status"] == again["status"] == "cancelled"


async def test_failures_are_its_end_and_refusals_are_told_at_once(echo_worker):
    async with running_router(await echo_worker(), history=ON) as gateway:
        http = gateway.http
        made = (await http.post(URL, json=body("[[error:INVALID_ARGUMENT:bad]]"))).json()
        failed = await ended(http, made["id"])
        unstored = (await http.post(URL, json=body("x", store=False))).status_code
        unknown = (await http.post(URL, json=body("x", conversation="conv_no"))).status_code
        followed = (await http.get(f"{URL}/{made['id']}?stream=true")).json()["error"]["code"]
    assert (failed["status"], failed["error"]["message"]) == ("failed", "bad")
    assert (unstored, unknown, followed) == (400, 404, "stream_not_available")


async def test_only_so_many_run_and_without_the_setting_none(echo_worker):
    url = await echo_worker()
    async with running_router(url, history=ON) as gateway:
        for _ in range(2):
            await gateway.http.post(URL, json=body("[[hang]]"))
        full = await gateway.http.post(URL, json=body("x"))
        assert (full.status_code, full.json()["error"]["code"]) == (429, "background_queue_full")
    async with running_router(url) as gateway:
        made = (await gateway.http.post(URL, json=body("[[say:x]]"))).json()
        assert (made["status"], made["background"]) == ("completed", False)


@asynccontextmanager
async def two_routers(url, tmp_path):
    """Two over one store, which vouch only when they are told to."""
    file = {"history_backend": "sqlite", "sqlite_path": str(tmp_path / "h.db")}
    shared = {**ON, **file, "background_lease_secs": 1e6}
    async with running_router(url, history=shared) as first, running_router(url, history=shared) as second:
        yield first, second


async def test_another_router_stops_it_and_cannot_follow_it(echo_worker, tmp_path):
    url = await echo_worker()
    async with two_routers(url, tmp_path) as (first, second):
        conversation = (await first.http.post("/v1/conversations", json={})).json()["id"]
        asked = body("[[hang]]", stream=True, conversation=conversation)
        seen, stopped = [], None
        async with first.http.stream("POST", URL, json=asked) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line[6:]))
                if line.startswith("event: response.output_text.delta") and not stopped:
                    response_id = seen[0]["response"]["id"]
                    found = (await second.http.get(f"{URL}/{response_id}")).json()
                    followed = await second.http.get(f"{URL}/{response_id}?stream=true")
                    await first.router.background.renew()
                    assert first.router.background.size == 1
                    stopped = (await second.http.post(f"{URL}/{response_id}/cancel")).json()
                    again = (await second.http.post(f"{URL}/{response_id}/cancel")).json()
                    await first.router.background.renew()
        await until(lambda: not echo_worker.servers[url].engine.load().running)
        kept = (await first.http.get(f"{URL}/{response_id}")).json()
        items = (await first.http.get(f"/v1/conversations/{conversation}/items")).json()["data"]
        unknown = await second.http.get(f"{URL}/resp_no?stream=true")
    assert found["status"] == "in_progress"
    assert (followed.status_code, followed.json()["error"]["code"]) == (400, "stream_not_available")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert stopped == again == kept
    assert (kept["status"], items) == ("cancelled", [])
    assert (seen[-1]["type"], seen[-1]["response"]["status"]) == ("response.cancelled", "cancelled")


async def test_what_was_deleted_does_not_come_back(echo_worker, tmp_path):
    url = await echo_worker()
    async with two_routers(url, tmp_path) as (first, second):
        for other in (first, second):
            made = (await first.http.post(URL, json=body("[[hang]]"))).json()
            await until(lambda: echo_worker.servers[url].engine.load().running)
            assert (await other.http.delete(f"{URL}/{made['id']}")).json()["deleted"]
            await first.router.background.renew()
            await until(lambda: not first.router.background.size)
            assert (await first.http.get(f"{URL}/{made['id']}")).status_code == 404
            await until(lambda: not echo_worker.servers[url].engine.load().running)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_what_nobody_vouches_for_has_failed(echo_worker, status):
    left = {"id": "resp_left", "status": status, "output": [], "error": None, "completed_at": None}
    stored = StoredResponse("resp_left", 1, orjson.dumps(left).decode(), lease_until=5)
    async with running_router(await echo_worker()) as gateway:
        await gateway.router.history.put_response("", stored)
        found = (await gateway.http.get(f"{URL}/resp_left")).json()
        again = (await gateway.http.get(f"{URL}/resp_left")).json()
        stopped = await gateway.http.post(f"{URL}/resp_left/cancel")
    assert found == again
    assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
    assert found["completed_at"] > 5
    assert (stopped.status_code, stopped.json()["error"]["code"]) == (400, "response_already_failed")


async def test_what_a_killed_router_has_left_fails_on_another(echo_worker, tmp_path):
    url, path = await echo_worker(), tmp_path / "h.db"
    options = ("--max-background-responses", "1", "--background-lease-secs", "1")
    shared = ("--history-backend", "sqlite", "--sqlite-path", str(path))
    with Children(Path(__file__).parents[2], tmp_path / "log") as children:
        killed, port = await asyncio.to_thread(start_gateway, children, [url], *options, *shared)
        async with httpx.AsyncClient(verify=False) as http:
            made = (await http.post(f"http://127.0.0.1:{port}{URL}", json=body("[[hang]]"))).json()
        os.kill(killed.pid, signal.SIGKILL)
        store = {"history_backend": "sqlite", "sqlite_path": str(path)}
        async with running_router(url, history=store) as gateway:
            found = await ended(gateway.http, made["id"])
    assert made["status"] == "queued"
    assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
