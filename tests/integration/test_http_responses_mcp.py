"""Tools of real MCP servers in responses: the loop of calls, its bounds, approvals, and what goes wrong."""

import json
import sys
from pathlib import Path

import pytest

from tests.integration.running_mcp import running_mcp
from tests.integration.running_router import running_router, until
from tests.integration.test_http_responses import create, events_of, refused, text_of
from tests.unit.smg.responses.replaying import replayed

URL = "/v1/responses"
ADD = '[[tool:add:{"a": 2, "b": 3}]]'
BOTH = f'{ADD}[[say:\\n]][[tool:add:{{"a": 10, "b": 20}}]]'
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
WEATHER_CALL = "[[tool:get_weather:{}]]"
PAGES_OF_TESTS = Path(__file__).with_name("mcp_pages.py")
TOOLS_OF_TESTS = Path(__file__).with_name("mcp_tools.py")


def server(mcp, label="calc", **fields):
    return {
        "type": "mcp",
        "server_label": label,
        "server_url": mcp.url,
        "require_approval": "never",
        **fields,
    }


def kinds(response):
    return [item["type"] for item in response["output"]]


def outputs(response):
    return [item["output"] for item in response["output"] if item["type"] == "mcp_call"]


async def test_a_call_is_made_and_the_model_goes_on_streamed_or_not(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        given, tools = f"{ADD}[[next]][[say:It is 5]]", [server(mcp)]
        whole = await create(gateway.http, given, tools=tools)
        events = await events_of(gateway.http, given, tools=tools)
    state = replayed(events)
    assert kinds(whole) == kinds(state.ended) == ["mcp_list_tools", "mcp_call", "message"]
    assert outputs(whole) == outputs(state.ended) == ["5"]
    assert text_of(whole) == text_of(state.ended) == ["It is 5"]
    assert state.items == state.ended["output"]
    assert mcp.calls == [("add", 2, 3)] * 2
    assert whole["usage"]["total_tokens"] == state.ended["usage"]["total_tokens"]
    names = [kind.removeprefix("response.") for kind, event in events if event.get("output_index") == 1]
    assert names == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]


async def test_allowed_tools_are_all_that_the_model_is_shown(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        for allowed, names in (
            (["add"], ["add"]),
            ([], []),
            ({"read_only": True}, ["look_up"]),
            ({"tool_names": ["add", "look_up"], "read_only": False}, ["add"]),
        ):
            made = await create(gateway.http, "[[say:x]]", tools=[server(mcp, allowed_tools=allowed)])
            assert [tool["name"] for tool in made["output"][0]["tools"]] == names


async def test_a_turn_that_is_tried_again_does_not_make_the_calls_before_it_again(echo_worker):
    retries = {"retry_max_retries": 3, "retry_initial_backoff_ms": 0, "retry_max_backoff_ms": 0}
    async with running_mcp() as mcp, running_router(await echo_worker(), retries=retries) as gateway:
        given = f"{ADD}[[next]][[error:UNAVAILABLE:gone]]"
        made = await create(gateway.http, given, tools=[server(mcp)])
        told = (await gateway.http.get("/metrics")).text
    assert (made["status"], made["error"]["message"]) == ("failed", "gone")
    assert kinds(made) == ["mcp_list_tools", "mcp_call"]
    assert 'smg_retries_total{route="responses"} 2.0' in told
    assert mcp.calls == [("add", 2, 3)]


async def test_a_failing_tool_is_a_failed_call_and_the_model_goes_on(echo_worker):
    given = '[[tool:fail:{"reason": "x"}]][[next]][[say:It failed]]'
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        made = await create(gateway.http, given, tools=[server(mcp)])
        events = await events_of(gateway.http, given, tools=[server(mcp)])
    call = made["output"][1]
    assert (call["status"], call["output"]) == ("failed", "")
    assert call["error"]["type"] == "mcp_tool_execution_error"
    assert made["status"] == "completed"
    assert text_of(made) == ["It failed"]
    (failed,) = [event for kind, event in events if kind == "response.mcp_call.failed"]
    assert failed["error"] == call["error"]["content"]
    replayed(events)


@pytest.mark.parametrize("stream", [False, True])
async def test_limits_of_calls_end_the_response_as_the_one_who_set_them_expects(echo_worker, stream):
    async def run(given, **fields):
        if stream:
            return replayed(await events_of(gateway.http, given, **fields)).ended
        return await create(gateway.http, given, **fields)

    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        tools = [server(mcp)]
        exact = await run(f"{BOTH}[[next]][[say:fits]]", tools=tools, max_tool_calls=2)
        one = await run(f"{BOTH}[[next]][[say:never]]", tools=tools, max_tool_calls=1)
        own = await run(f"{ADD}[[loop]]", tools=tools)
        large = await run(f"{ADD}[[loop]]", tools=tools, max_tool_calls=11)
        few = await run(f"{ADD}[[loop]]", tools=tools, max_tool_calls=1)
    assert (outputs(exact), exact["status"]) == (["5", "30"], "completed")
    assert kinds(exact)[-1] == "message"
    assert (outputs(one), kinds(one)[-1], one["status"]) == (["5"], "mcp_call", "completed")
    # The turn that asked for too much counts as well: two against eleven.
    assert 2 * own["usage"]["output_tokens"] == 11 * few["usage"]["output_tokens"]
    for response in (own, large):
        assert (len(outputs(response)), response["status"]) == (10, "failed")
        assert response["error"]["code"] == "max_tool_calls_exceeded"


async def test_only_the_first_turn_is_forced(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        given = '[[calls:add:{"a": 2, "b": 3}]][[next]][[say:5]]'
        for choice in ("required", {"type": "mcp", "server_label": "calc"}):
            made = await create(gateway.http, given, tools=[server(mcp)], tool_choice=choice)
            assert (outputs(made), text_of(made)) == (["5"], ["5"])


async def test_the_clients_calls_come_back_once_the_servers_are_made(echo_worker):
    given = f"{WEATHER_CALL}[[say:\\n]]{ADD}[[next]][[say:later]]"
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        tools = [server(mcp), WEATHER]
        whole = await create(gateway.http, given, tools=tools)
        streamed = replayed(await events_of(gateway.http, given, tools=tools)).ended
    assert kinds(whole) == ["mcp_list_tools", "mcp_call", "function_call"]
    assert kinds(streamed) == ["mcp_list_tools", "function_call", "mcp_call"]


async def test_a_turn_that_was_cut_off_makes_no_calls(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        tools = [server(mcp)]
        cut = await create(gateway.http, ADD, tools=tools, max_output_tokens=16)
        complete = await create(gateway.http, f"{ADD}[[finish:length]]", tools=tools)
        failed = await events_of(gateway.http, f"{ADD}[[say:x]][[errorafter:12:INTERNAL:late]]", tools=tools)
    assert cut["status"] == complete["status"] == "incomplete"
    assert failed[-1][0] == "response.failed"
    assert mcp.calls == []


async def test_a_call_that_takes_too_long_fails(echo_worker):
    limits = {"mcp_tool_timeout_secs": 0.2}
    async with running_mcp() as mcp, running_router(await echo_worker(), mcp=limits) as gateway:
        made = await create(gateway.http, "[[tool:hang:{}]][[next]][[say:on]]", tools=[server(mcp)])
    (hung,) = (item for item in made["output"] if item["type"] == "mcp_call")
    assert "has not answered within 0.2 s" in hung["error"]["content"]
    assert text_of(made) == ["on"]


async def test_a_long_result_is_cut(echo_worker):
    given = '[[tool:shout:{"count": 5000}]][[next]][[say:on]]'
    limits = {"mcp_max_result_bytes": 1024}
    async with running_mcp() as mcp, running_router(await echo_worker(), mcp=limits) as gateway:
        made = await create(gateway.http, given, tools=[server(mcp)])
    (shouted,) = outputs(made)
    assert len(shouted) < 1100
    assert "3976 more bytes" in shouted
    assert text_of(made) == ["on"]


async def test_a_connection_that_is_lost_fails_one_call_and_not_the_session(echo_worker):
    given = f"[[tool:drop:{{}}]][[next]]{ADD}[[next]][[say:on]]"
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        made = await create(gateway.http, given, tools=[server(mcp)])
        begun = sum("mcp-session-id" not in headers for headers in mcp.headers)
    dropped, added = (item for item in made["output"] if item["type"] == "mcp_call")
    assert (dropped["status"], added["output"], text_of(made)) == ("failed", "5", ["on"])
    assert "does not answer" in dropped["error"]["content"]
    assert begun == 1


async def test_a_client_that_leaves_cancels_the_call(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        request = {"model": "m", "input": "[[tool:hang:{}]]", "tools": [server(mcp)], "stream": True}
        async with gateway.http.stream("POST", URL, json=request) as answer:
            async for line in answer.aiter_lines():
                if "mcp_call_arguments.done" in line:
                    break
        await until(lambda: not gateway.router.admission.running)


async def test_the_same_failure_three_times_is_not_tried_again(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        made = await create(gateway.http, "[[tool:fail:{}]][[loop]]", tools=[server(mcp)])
    assert len([item for item in made["output"] if item["type"] == "mcp_call"]) == 10
    assert len(mcp.calls) == 3


async def test_a_server_that_cannot_be_used_is_a_424_before_anything_else(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        for url in ("http://127.0.0.1:9/mcp", mcp.url.replace("/mcp", "/nothing")):
            for stream in (False, True):
                tools = [server(mcp, server_url=url)]
                status, error = await refused(gateway.http, "x", tools=tools, stream=stream)
                assert (status, error["code"]) == (424, "connect_mcp_server_failed")
                assert error["type"] == "Failed Dependency"


@pytest.mark.parametrize("url", ["http://169.254.169.254/mcp", "ftp://a/mcp", "http://u:p@127.0.0.1/mcp"])
async def test_clients_cannot_send_the_gateway_anywhere(echo_worker, url):
    async with running_router(await echo_worker()) as gateway:
        tools = [{"type": "mcp", "server_label": "s", "server_url": url}]
        status, error = await refused(gateway.http, "x", tools=tools)
    assert (status, error["code"]) == (400, 400)


async def test_with_keys_of_tenants_private_addresses_are_refused(echo_worker):
    keys = {"tenant_api_key": [{"tenant": "red", "key": "r"}]}
    async with running_mcp() as mcp, running_router(await echo_worker(), callers=keys) as gateway:
        request = {"model": "m", "input": "x", "tools": [server(mcp)]}
        answer = await gateway.http.post(URL, json=request, headers={"authorization": "Bearer r"})
    assert answer.status_code == 400
    assert mcp.headers == []


async def test_secrets_reach_the_server_and_nobody_else(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        tools = [server(mcp, authorization="tok", headers={"x-team": "a"})]
        made = await create(gateway.http, "[[say:x]]", tools=tools)
        stored = await gateway.http.get(f"{URL}/{made['id']}")
    assert mcp.headers[0]["authorization"] == "Bearer tok"
    assert mcp.headers[0]["x-team"] == "a"
    assert "tok" not in json.dumps(made["tools"]) + json.dumps(stored.json()["tools"])
    assert "x-team" not in stored.text


async def test_sessions_are_kept_for_the_same_caller_and_server_alone(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        for _ in range(3):
            await create(gateway.http, "[[say:x]]", tools=[server(mcp)])
        assert gateway.router.mcp_sessions.size == 1
        await create(gateway.http, "[[say:x]]", tools=[server(mcp, authorization="other")])
        assert gateway.router.mcp_sessions.size == 2


async def test_an_approved_call_is_made_once_and_a_declined_one_never(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        http, tools = gateway.http, [server(mcp, require_approval="always")]

        async def ask():
            asked = await create(http, f"{ADD}[[next]][[say:5]]", tools=tools)
            assert kinds(asked) == ["mcp_list_tools", "mcp_approval_request"]
            return asked["id"], asked["output"][1]

        def answer(request, **fields):
            return [{"type": "mcp_approval_response", "approval_request_id": request["id"], **fields}]

        asked_id, request = await ask()
        assert mcp.calls == []
        events = await events_of(
            http, answer(request, approve=True), previous_response_id=asked_id, tools=tools
        )
        approved = replayed(events).ended
        assert mcp.calls == [("add", 2, 3)]
        (call,) = [item for item in approved["output"] if item["type"] == "mcp_call"]
        assert (call["approval_request_id"], call["output"]) == (request["id"], "5")
        again = await refused(
            http, answer(request, approve=True), previous_response_id=approved["id"], tools=tools
        )
        assert again[0] == 400
        asked_id, request = await ask()
        declined = await create(
            http, answer(request, approve=False, reason="no"), previous_response_id=asked_id, tools=tools
        )
        assert "mcp_call" not in kinds(declined)
        assert mcp.calls == [("add", 2, 3)]


async def test_servers_of_the_operator_are_named_by_their_label(echo_worker, tmp_path):
    path = tmp_path / "mcp.yaml"
    async with running_mcp() as mcp, running_mcp(transport="sse") as sse:
        path.write_text(
            "servers:\n"
            f"  - {{name: local, protocol: stdio, command: '{sys.executable}', args: ['{TOOLS_OF_TESTS}']}}\n"
            f"  - {{name: events, protocol: sse, url: '{sse.url}'}}\n"
            f"  - {{name: web, protocol: streamable, url: '{mcp.url}', token: secret,\n"
            "     builtin_type: web_search_preview, builtin_tool_name: look_up}\n"
        )
        settings = {"mcp_config_path": str(path), "mcp_private_addresses": "refuse"}
        async with running_router(await echo_worker(), mcp=settings) as gateway:
            for label in ("local", "events"):
                made = await create(
                    gateway.http, f"{ADD}[[next]][[say:5]]", tools=[{"type": "mcp", "server_label": label}]
                )
                assert outputs(made) == ["5"]
            given = '[[tool:look_up:{"key": "k"}]][[next]][[say:found]]'
            events = await events_of(gateway.http, given, tools=[{"type": "web_search_preview"}])
    searched = replayed(events).ended["output"]
    assert [item["type"] for item in searched] == ["web_search_call", "message"]
    assert searched[0]["status"] == "completed"
    assert "response.web_search_call.searching" in [kind for kind, _ in events]
    assert mcp.headers[0]["authorization"] == "Bearer secret"
    assert mcp.calls == [("look_up", "k")]


async def test_pages_of_tools_that_lead_in_a_circle_are_left(echo_worker, tmp_path):
    path = tmp_path / "mcp.yaml"
    command = f"command: '{sys.executable}', args: ['{PAGES_OF_TESTS}']"
    path.write_text(f"servers:\n  - {{name: pages, protocol: stdio, {command}}}\n")
    async with running_router(await echo_worker(), mcp={"mcp_config_path": str(path)}) as gateway:
        made = await create(gateway.http, "[[say:x]]", tools=[{"type": "mcp", "server_label": "pages"}])
    assert {tool["name"] for tool in made["output"][0]["tools"]} == {"add"}
