"""smg.responses.v1.ResponsesService through the real router: the same answers and refusals as over HTTP."""

import json

import grpc

from smg_proto.responses.v1 import responses_pb2 as pb
from smg_proto.responses.v1 import responses_pb2_grpc
from tests.integration.running_mcp import running_mcp
from tests.integration.running_router import outcome, running_router, until
from tests.unit.smg.responses.replaying import replayed


def request(text, **fields):
    return pb.ResponseRequest(model="m", input_text=text, **fields)


async def test_a_response_whole_streamed_stored_and_forgotten(echo_worker):
    async with running_mcp() as mcp, running_router(await echo_worker()) as gateway:
        stub = responses_pb2_grpc.ResponsesServiceStub(gateway.channel)
        tools = json.dumps([{"type": "mcp", "server_label": "calc", "server_url": mcp.url}])
        asked = request('[[tool:add:{"a": 2, "b": 3}]][[next]][[say:It is 5]]', tools_json=tools)
        made = await stub.CreateResponse(pb.CreateResponseRequest(response=asked))
        call = stub.StreamResponse(pb.StreamResponseRequest(response=asked))
        events = [event async for event in call]
        state = replayed([(event.type, json.loads(event.event_json)) for event in events])
        over_http = await gateway.http.get(f"/v1/responses/{made.id}")
        stored = await stub.GetResponse(pb.GetResponseRequest(id=made.id))
        items = await stub.ListInputItems(pb.ListInputItemsRequest(id=made.id))
        await stub.DeleteResponse(pb.DeleteResponseRequest(id=made.id))
        gone = await outcome(stub.GetResponse(pb.GetResponseRequest(id=made.id)))
        cancelled = await outcome(stub.CancelResponse(pb.CancelResponseRequest(id=state.ended["id"])))
    assert json.loads(made.response_json) == json.loads(stored.response_json) == over_http.json()
    assert [item["type"] for item in state.items] == ["mcp_list_tools", "mcp_call", "message"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert json.loads(items.items_json[0])["role"] == "user"
    assert (gone[0], gone[2].code) == ("NOT_FOUND", "not_found")
    assert (cancelled[0], cancelled[2].code) == ("INVALID_ARGUMENT", "response_already_completed")


async def test_refusals_are_statuses_with_their_codes(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        stub = responses_pb2_grpc.ResponsesServiceStub(gateway.channel)

        async def refused(asked):
            whole = await outcome(stub.CreateResponse(pb.CreateResponseRequest(response=asked)))
            streamed = await outcome(stub.StreamResponse(pb.StreamResponseRequest(response=asked)))
            assert (whole[0], whole[2].code) == (streamed[0], streamed[2].code)
            return whole[0], whole[2].code

        dead = json.dumps([{"type": "mcp", "server_label": "s", "server_url": "http://127.0.0.1:9/mcp"}])
        assert await refused(request("x", tools_json="[1]")) == ("INVALID_ARGUMENT", "json_parse_error")
        assert await refused(request("x", max_tool_calls=0)) == ("INVALID_ARGUMENT", "400")
        assert await refused(request("x", conversation="conv_no")) == ("NOT_FOUND", "conversation_not_found")
        assert await refused(request("x", tools_json=dead)) == (
            "FAILED_PRECONDITION",
            "connect_mcp_server_failed",
        )


async def test_a_client_that_leaves_ends_the_response(echo_worker):
    url = await echo_worker()
    async with running_router(url) as gateway:
        stub = responses_pb2_grpc.ResponsesServiceStub(gateway.channel)
        call = stub.StreamResponse(pb.StreamResponseRequest(response=request("[[hang]]")))
        assert (await call.read()).type == "response.created"
        call.cancel()
        await until(lambda: not echo_worker.servers[url].engine.load().running)
        assert await call.code() is grpc.StatusCode.CANCELLED
