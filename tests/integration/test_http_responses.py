"""POST /v1/responses over real sockets: whole and streamed, stored, followed, and kept apart by tenant."""

import json

import pytest

from tests.integration.running_router import running_router, until
from tests.unit.smg.responses.replaying import replayed

URL = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '[[tool:get_weather:{"city": "Paris"}]]'


def body(given, **fields):
    return {"model": "m", "input": given, **fields}


async def events_of(http, given, **fields):
    """(type, event) of a stream; a Responses stream has no [DONE]."""
    async with http.stream("POST", URL, json=body(given, stream=True, **fields)) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        raw = (await answer.aread()).decode()
    assert "[DONE]" not in raw
    frames = [frame.split("\n", 1) for frame in raw.split("\n\n") if frame]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in frames]


async def create(http, given, **fields):
    answer = await http.post(URL, json=body(given, **fields))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(http, given, **fields):
    answer = await http.post(URL, json=body(given, **fields))
    return answer.status_code, answer.json()["error"]


def text_of(response):
    return [part["text"] for item in response["output"] for part in item.get("content", ())]


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ("[[say:Grüße, 世界 🙂]]", {}),
        ("[[say:]]", {}),
        (f"[[say:Let me see. ]]{CALL}[[say:\\n]]{CALL}", {"tools": [WEATHER]}),
        ("[[len:30]]", {"max_output_tokens": 16}),
        (CALL, {"max_output_tokens": 16, "tools": [WEATHER]}),
        ("[[say:one two]]", {"include": ["message.output_text.logprobs"], "top_logprobs": 2}),
        ("[[say:a b c d]][[errorafter:2:INTERNAL:late]]", {}),
        ("[[say:one STOP two]]", {"stop": "STOP"}),
    ],
)
async def test_a_streams_events_rebuild_the_response_that_is_stored(echo_worker, given, fields):
    async with running_router(await echo_worker()) as gateway:
        events = await events_of(gateway.http, given, **fields)
        state = replayed(events)
        stored = (await gateway.http.get(f"{URL}/{state.ended['id']}")).json()
    assert [kind for kind, _ in events[:2]] == ["response.created", "response.in_progress"]
    assert state.items == state.ended["output"]
    assert events[-1][0] == f"response.{state.ended['status']}"
    assert stored["status"] == state.ended["status"]
    assert text_of(stored) == text_of(state.ended)
    assert [item["id"] for item in stored["output"]] == [item["id"] for item in state.items]


async def test_whole_and_streamed_say_the_same(echo_worker):
    given = f"[[say:Let me see. ]]{CALL}"
    async with running_router(await echo_worker()) as gateway:
        whole = await create(gateway.http, given, tools=[WEATHER], metadata={"k": "v"})
        streamed = replayed(await events_of(gateway.http, given, tools=[WEATHER], metadata={"k": "v"})).ended
    # The second one finds its prompt in the engine's cache.
    streamed["usage"]["input_tokens_details"] = whole["usage"]["input_tokens_details"]
    for name in ("status", "usage", "tools", "metadata", "model"):
        assert whole[name] == streamed[name]
    assert [item["type"] for item in whole["output"]] == ["message", "function_call"]
    assert whole["output"][1]["arguments"] == streamed["output"][1]["arguments"] == '{"city":"Paris"}'


async def test_sampling_extensions_reach_the_engine(echo_worker):
    fields = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "max_output_tokens": 200}
    async with running_router(await echo_worker()) as gateway:
        (said,) = text_of(await create(gateway.http, "[[mirror]]", **fields))
    mirrored = json.loads(said)
    assert (mirrored["top_k"], mirrored["min_p"], mirrored["repetition_penalty"]) == (5, 0.1, 1.2)


async def test_a_chain_shows_the_model_what_was_said_and_misses_no_link(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        http = gateway.http
        first = await create(http, "[[say:one]]")
        second = await create(http, "[[say:two]]", previous_response_id=first["id"], stream=False)
        third = await create(http, "[[say:three]]", previous_response_id=second["id"])
        counts = [each["usage"]["input_tokens"] for each in (first, second, third)]
        assert counts == sorted(set(counts))
        # Outputs alone are enough to go on with.
        asked = await create(http, CALL, tools=[WEATHER])
        (call,) = asked["output"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "18°C"}
        await create(http, [result], previous_response_id=asked["id"])
        assert (await http.delete(f"{URL}/{first['id']}")).json() == {
            "id": first["id"],
            "object": "response.deleted",
            "deleted": True,
        }
        status, error = await refused(http, "x", previous_response_id=third["id"])
    assert (status, error["code"]) == (400, "previous_response_not_found")
    assert first["id"] in error["message"]


async def test_a_stored_stream_can_be_followed_as_soon_as_its_end_is_told(echo_worker):
    request = body("[[say:one]]", stream=True)
    async with (
        running_router(await echo_worker()) as gateway,
        gateway.http.stream("POST", URL, json=request) as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and '"response.completed"' in line:
                response_id = json.loads(line[6:])["response"]["id"]
                following = await create(gateway.http, "two", previous_response_id=response_id)
    assert following["previous_response_id"] == response_id


async def test_a_conversation_gets_the_items_of_each_response_once_and_in_order(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        http = gateway.http
        conversation = (await http.post("/v1/conversations", json={})).json()["id"]
        await create(http, "[[say:A]]", conversation=conversation)
        await events_of(http, "[[say:B]]", conversation={"id": conversation})
        await create(http, "[[say:unseen]]", conversation=conversation, store=False)
        listed = (await http.get(f"/v1/conversations/{conversation}/items?order=asc")).json()["data"]
        status, error = await refused(http, "x", conversation="conv_nope")
    said = [part["text"] for item in listed for part in item["content"]]
    assert said == ["[[say:A]]", "A", "[[say:B]]", "B"]
    assert (status, error["code"]) == (404, "conversation_not_found")


async def test_what_is_not_stored_is_unknown(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        http = gateway.http
        made = await create(http, "[[say:x]]", store=False)
        assert (await http.get(f"{URL}/{made['id']}")).status_code == 404
        status, error = await refused(http, "y", previous_response_id=made["id"])
    assert (status, error["code"]) == (400, "previous_response_not_found")


async def test_a_client_that_leaves_ends_the_response_and_nothing_is_kept(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        http = gateway.http
        conversation = (await http.post("/v1/conversations", json={})).json()["id"]
        request = body("[[hang]]", stream=True, conversation=conversation)
        async with http.stream("POST", URL, json=request) as answer:
            async for line in answer.aiter_lines():
                if '"response.created"' in line and line.startswith("data: "):
                    response_id = json.loads(line[6:])["response"]["id"]
                if "output_text.delta" in line:
                    break
        await until(lambda: not echo_worker.servers[url].engine.load().running)
        await until(lambda: not gateway.router.admission.running)
        assert (await http.get(f"{URL}/{response_id}")).status_code == 404
        assert (await http.get(f"/v1/conversations/{conversation}/items")).json()["data"] == []


async def test_input_items_and_cancel(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        http = gateway.http
        items = [{"role": "user", "content": "Hi"}, {"id": "msg_own", "role": "user", "content": "x\u0000y"}]
        made = await create(http, items)
        listed = (await http.get(f"{URL}/{made['id']}/input_items")).json()
        cancelled = (await http.post(f"{URL}/{made['id']}/cancel")).json()["error"]["code"]
        unknown = await http.post(f"{URL}/resp_none/cancel")
    assert [item["content"][0]["text"] for item in listed["data"]] == ["Hi", "x\u0000y"]
    assert (listed["first_id"][:4], listed["last_id"], listed["has_more"]) == ("msg_", "msg_own", False)
    assert cancelled == "response_already_completed"
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "response_not_found")


async def test_tenants_see_nothing_of_each_other(echo_worker):
    keys = [{"tenant": "red", "key": "r"}, {"tenant": "blue", "key": "b"}]
    async with running_router(await echo_worker(), callers={"tenant_api_key": keys}) as gateway:
        http = gateway.http
        red, blue = ({"authorization": f"Bearer {key}"} for key in ("r", "b"))
        made = (await http.post(URL, json=body("[[say:x]]"), headers=red)).json()
        assert (await http.get(f"{URL}/{made['id']}", headers=red)).status_code == 200
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
            answer = await http.request(method, f"{URL}/{made['id']}{path}", headers=blue)
            assert answer.status_code == 404
        following = body("y", previous_response_id=made["id"])
        assert (await http.post(URL, json=following, headers=blue)).status_code == 400


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"foo": 1}, "json_parse_error"), ({"temperature": 3}, 400), ({"input": None}, "json_parse_error")],
)
async def test_refusals_have_the_forms_of_the_api(echo_worker, fields, code):
    async with running_router(await echo_worker()) as gateway:
        status, error = await refused(gateway.http, "x", **fields)
    assert (status, error["type"], error["code"]) == (400, "invalid_request_error", code)


async def test_an_engine_that_refuses_is_an_ordinary_error_streamed_or_not(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        for stream in (False, True):
            status, error = await refused(gateway.http, "[[error:INVALID_ARGUMENT:bad]]", stream=stream)
            assert (status, error["code"]) == (400, "start_generation_failed")


async def test_a_deep_chain_is_read_in_one_go(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        last = ""
        for _ in range(100):
            made = await create(
                gateway.http, "x", **({"previous_response_id": last} if last else {}), max_output_tokens=16
            )
            last = made["id"]
        assert made["usage"]["input_tokens"] > 1000


async def test_a_store_that_cannot_be_reached_is_told_and_streams_end_as_failed(echo_worker):
    away = {"history_backend": "redis", "redis_url": "redis://127.0.0.1:9/0", "redis_op_timeout_secs": 0.1}
    async with running_router(await echo_worker(), history=away) as gateway:
        http = gateway.http
        whole = await refused(http, "[[say:x]]")
        ended = replayed(await events_of(http, "[[say:x]]")).ended
        chained = await refused(http, "x", previous_response_id="resp_1")
        conversation = await refused(http, "x", conversation="conv_1")
        unstored = await create(http, "[[say:x]]", store=False)
    assert (whole[0], whole[1]["code"]) == (500, "storage_error")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "storage_error")
    assert (chained[0], chained[1]["code"]) == (500, "load_previous_response_chain_failed")
    assert (conversation[0], conversation[1]["code"]) == (500, "check_conversation_failed")
    assert unstored["status"] == "completed"


async def test_an_answer_to_an_alias_names_the_model_behind_it(echo_worker):
    async with running_router(await echo_worker(), models={"model_alias": {"nick": "m"}}) as aliased:
        asked = {"model": "nick", "input": "[[say:x]]"}
        whole = (await aliased.http.post("/v1/responses", json=asked)).json()
        stream = (await aliased.http.post("/v1/responses", json={**asked, "stream": True})).text
        kept = (await aliased.http.get(f"/v1/responses/{whole['id']}")).json()
    assert whole["model"] == kept["model"] == "m"
    told = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
    assert {each["response"]["model"] for each in told if "model" in each.get("response", {})} == {"m"}
