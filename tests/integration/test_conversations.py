"""Conversations over HTTP and gRPC, in memory and in a file: as S1 and the OpenAI SDK have them."""

import json

import grpc
import openai
import pytest
import pytest_asyncio

from smg_proto.responses.v1 import conversations_pb2 as pb
from smg_proto.responses.v1 import conversations_pb2_grpc
from tests.integration.running_router import outcome, running_router

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/v1/conversations"
NOT_FOUND = {"error": "Conversation not found"}
SAID = [{"type": "input_text", "text": "What is 2+2?"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["memory", "sqlite"])
async def gateway(request, tmp_path_factory):
    history = {
        "history_backend": request.param,
        "sqlite_path": str(tmp_path_factory.mktemp("history") / "h.db"),
    }
    async with running_router(history=history) as running:
        running.stub = conversations_pb2_grpc.ConversationsServiceStub(running.channel)
        yield running


async def begun(gateway, *items, **metadata):
    """The id of a new conversation, with items."""
    made = await gateway.http.post(PATH, json={"metadata": metadata})
    assert made.status_code == 200
    if items:
        added = await gateway.http.post(f"{PATH}/{made.json()['id']}/items", json={"items": items})
        assert added.status_code == 200, added.text
    return made.json()["id"]


def message(text, **fields):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **fields}


async def texts(gateway, name, query="order=asc"):
    page = (await gateway.http.get(f"{PATH}/{name}/items?{query}")).json()
    return [item["content"][0]["text"] for item in page["data"]]


async def test_a_conversation_lives_from_its_beginning_to_its_end(gateway):
    made = (await gateway.http.post(PATH, json={"metadata": {"a": "1", "b": "2"}})).json()
    path = f"{PATH}/{made['id']}"
    assert made["id"].startswith("conv_")
    assert (made["object"], made["metadata"]) == ("conversation", {"a": "1", "b": "2"})
    assert (await gateway.http.get(path)).json() == made
    changed = await gateway.http.post(path, json={"metadata": {"a": None, "c": "3", "none": None}})
    assert changed.json() == {**made, "metadata": {"b": "2", "c": "3"}}
    assert (await gateway.http.post(path, json={})).json() == changed.json()
    gone = await gateway.http.delete(path)
    assert gone.json() == {"id": made["id"], "object": "conversation.deleted", "deleted": True}
    for method, url, body in (
        ("GET", path, None),
        ("POST", path, {"metadata": {"a": "b"}}),
        ("DELETE", path, None),
        ("GET", f"{path}/items", None),
        ("POST", f"{path}/items", {"items": [message("x")]}),
        ("GET", f"{path}/items/x", None),
        ("DELETE", f"{path}/items/x", None),
    ):
        answer = await gateway.http.request(method, url, json=body)
        assert (answer.status_code, answer.json()) == (404, NOT_FOUND)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'"x"'])
async def test_a_body_that_says_nothing_begins_an_empty_one(gateway, content):
    made = await gateway.http.post(PATH, content=content)
    assert (made.status_code, made.json()["metadata"]) == (200, {})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "not valid JSON"),
        ('{"metadata": null}', "metadata must be an object"),
        ('{"metadata": "x"}', "metadata must be an object"),
        ('{"metadata": []}', "metadata must be an object"),
        ('{"metadata": {"a": 1}}', "metadata.a must be a string"),
        (json.dumps({"metadata": {"k": "v" * 70_000}}), "70000 characters; at most 65536"),
        (json.dumps({"metadata": {"k" * 300: "v"}}), "300 characters; at most 256"),
        (json.dumps({"metadata": {str(n): "v" for n in range(17)}}), "17 properties; at most 16"),
    ],
)
async def test_bad_metadata_is_refused_at_the_beginning_and_later(gateway, body, says):
    name = await begun(gateway, m="v")
    for path in (PATH, f"{PATH}/{name}"):
        answer = await gateway.http.post(path, content=body.encode())
        assert answer.status_code == 400
        assert says.replace("17", "18") in answer.json()["error"] or says in answer.json()["error"]
    assert (await gateway.http.get(f"{PATH}/{name}")).json()["metadata"] == {"m": "v"}


async def test_items_are_kept_as_the_api_has_them(gateway):
    given = [
        {"role": "user", "content": "plain"},
        {"type": "message", "role": "assistant", "content": "said"},
        {"type": "message", "role": "user", "status": "in_progress"},
        message("own", id="msg_mine"),
        {"type": "reasoning", "summary": [], "name": "x"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "e"},
        {"type": "mcp_call", "name": "n", "arguments": "{}", "output": "o", "server_label": "s", "tools": []},
        {"type": "mcp_list_tools", "server_label": "s", "tools": []},
    ]
    name = await begun(gateway)
    added = (await gateway.http.post(f"{PATH}/{name}/items", json={"items": given})).json()
    bare = [{key: value for key, value in item.items() if key != "id"} for item in added["data"]]
    done = {"status": "completed"}
    assert bare == [
        {**message("plain"), **done},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "said"}],
            **done,
        },
        {"type": "message", "role": "user", "content": [], "status": "in_progress"},
        {**message("own"), **done},
        {"type": "reasoning", "content": [], **done},
        {**given[5], "content": [], **done},
        {key: value for key, value in {**given[6], **done}.items() if key != "tools"},
        {**given[7], **done},
    ]
    ids = [item["id"] for item in added["data"]]
    prefixes = ["msg", "msg", "msg", "msg", "rs", "rs", "mcp", "mcpl"]
    assert [item_id.split("_")[0] for item_id in ids] == prefixes
    assert len(set(ids)) == len(ids)
    assert (added["first_id"], added["last_id"], added["has_more"]) == (ids[0], ids[-1], False)
    assert "warnings" not in added
    listed = (await gateway.http.get(f"{PATH}/{name}/items?order=asc")).json()
    assert listed["data"] == added["data"]
    got = await gateway.http.get(f"{PATH}/{name}/items/msg_mine")
    assert got.json() == added["data"][3]


async def test_items_that_are_not_understood_are_kept_with_a_warning(gateway):
    name = await begun(gateway)
    given = [message("ok"), {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}]
    given += [{"type": "web_search_call"}, {"type": "function_call_output", "call_id": "c", "output": "o"}]
    added = (await gateway.http.post(f"{PATH}/{name}/items", json={"items": given})).json()
    assert [item["type"] for item in added["data"]] == [item["type"] for item in given]
    assert [text.split("'")[1] for text in added["warnings"]] == [item["type"] for item in given[1:]]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 400, "items must be an array"),
        ({"items": "x"}, 400, "items must be an array"),
        ({"items": [5]}, 400, "items[0] must be an object"),
        ({"items": [message("x")] * 21}, 400, "21 items; at most 20"),
        ({"items": [message("not kept"), {"type": "alien"}]}, 400, "items[1].type is 'alien'"),
        ({"items": [{"type": ["x"]}]}, 400, "items[0].type"),
        ({"items": [{"type": "message", "content": "x"}]}, 400, "items[0].role is missing"),
        ({"items": [{"role": "user", "content": 5}]}, 400, "items[0].content"),
        ({"items": [{"role": "user", "status": 5}]}, 400, "items[0].status"),
        ({"items": [message("x", id="")]}, 400, "items[0].id"),
        ({"items": [message("x", id="a" * 65)]}, 400, "items[0].id"),
        ({"items": [message("x", id="a\nb")]}, 400, "items[0].id"),
        ({"items": [{"type": "item_reference"}]}, 400, "items[0].id is missing"),
        ({"items": [message("not kept"), {"type": "item_reference", "id": "msg_nope"}]}, 404, "msg_nope"),
    ],
)
async def test_bad_items_are_refused_and_none_is_kept(gateway, body, status, says):
    name = await begun(gateway)
    answer = await gateway.http.post(f"{PATH}/{name}/items", json=body)
    assert answer.status_code == status
    assert says in answer.json()["error"]
    assert await texts(gateway, name) == []


async def test_an_item_is_in_a_conversation_once_and_may_be_in_others(gateway):
    one, two = await begun(gateway, message("a", id="msg_shared")), await begun(gateway)
    for again in (message("b", id="msg_shared"), {"type": "item_reference", "id": "msg_shared"}):
        answer = await gateway.http.post(f"{PATH}/{one}/items", json={"items": [again]})
        assert answer.status_code == 400
        assert answer.json()["error"] == {
            "message": "Item already in conversation",
            "type": "invalid_request_error",
            "param": "items",
            "code": "item_already_in_conversation",
        }
    shared = {"items": [{"type": "item_reference", "id": "msg_shared"}]}
    added = await gateway.http.post(f"{PATH}/{two}/items", json=shared)
    assert added.json()["data"][0]["content"][0]["text"] == "a"
    left = await gateway.http.delete(f"{PATH}/{one}/items/msg_shared")
    assert left.json()["id"] == one
    assert (await gateway.http.delete(f"{PATH}/{one}/items/msg_shared")).json() == left.json()
    assert (await gateway.http.get(f"{PATH}/{one}/items/msg_shared")).status_code == 404
    assert (await gateway.http.get(f"{PATH}/{two}/items/msg_shared")).status_code == 200
    await gateway.http.delete(f"{PATH}/{two}")


async def test_pages(gateway):
    name = await begun(gateway, *(message(str(n), id=f"msg_page_{n}") for n in range(5)))
    assert await texts(gateway, name, "") == ["4", "3", "2", "1", "0"]
    assert await texts(gateway, name, "order=sideways&limit=2") == ["4", "3"]
    assert await texts(gateway, name, "order=asc&limit=2&after=msg_page_1") == ["2", "3"]
    assert await texts(gateway, name, "limit=2&after=msg_page_1") == ["0"]
    assert len(await texts(gateway, name, "limit=0")) == len(await texts(gateway, name, "limit=101")) == 5
    for query, more in (
        ("limit=6", False),
        ("limit=5", True),
        ("limit=4", True),
        ("", False),
        ("limit=0", False),
        ("limit=101", False),
        ("after=msg_page_0", False),  # the last one: an empty page
    ):
        page = (await gateway.http.get(f"{PATH}/{name}/items?{query}")).json()
        assert page["has_more"] is more
    for query, status in (("limit=-1", 400), ("limit=abc", 400), ("limit=", 200), ("after=msg_nope", 404)):
        assert (await gateway.http.get(f"{PATH}/{name}/items?{query}")).status_code == status
    await gateway.http.delete(f"{PATH}/{name}")


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_whoever_follows_pages_sees_each_item_once_though_more_come(gateway, order):
    names = [f"msg_{order}_{n:02}" for n in range(45)]
    name = await begun(gateway, *(message("x", id=each) for each in names[:20]))
    for some in (names[20:40], names[40:]):
        await gateway.http.post(
            f"{PATH}/{name}/items", json={"items": [message("x", id=each) for each in some]}
        )
    seen, after = [], ""
    while True:
        page = (await gateway.http.get(f"{PATH}/{name}/items?limit=20&order={order}&after={after}")).json()
        seen += [item["id"] for item in page["data"]]
        if not page["has_more"]:
            break
        after = page["last_id"]
        new = message("x", id=f"msg_{order}_new_{len(seen)}")
        await gateway.http.post(f"{PATH}/{name}/items", json={"items": [new]})
    # What came meanwhile is at the end, which comes first for those who read backwards.
    old = [each for each in seen if "new" not in each]
    assert old == (names if order == "asc" else names[::-1])
    assert len(seen) == len(set(seen))
    await gateway.http.delete(f"{PATH}/{name}/items/{after}")
    gone = await gateway.http.get(f"{PATH}/{name}/items?after={after}")
    assert gone.status_code == 404


async def test_what_may_be_included_is_checked(gateway):
    name = await begun(gateway, message("a", id="msg_include"))
    path = f"{PATH}/{name}/items/msg_include"
    good = "include[]=reasoning.encrypted_content&include=web_search_call.results"
    assert (await gateway.http.get(f"{path}?{good}")).status_code == 200
    for query, param in (
        ("include=nope", "include[0]"),
        (f"{good}&include=zzz", "include[2]"),
        ("include=", "include[0]"),
        ("include=reasoning.encrypted_content,web_search_call.results", "include[0]"),
    ):
        answer = await gateway.http.get(f"{path}?{query}")
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, param, "invalid_value")
    await gateway.http.delete(f"{PATH}/{name}")


async def test_typed_calls_do_the_same(gateway):
    stub = gateway.stub
    items = [json.dumps(message("typed", id="msg_typed"))]
    made = (
        await stub.CreateConversation(
            pb.CreateConversationRequest(metadata={"a": "1", "b": "2"}, items_json=items)
        )
    ).conversation
    assert (await gateway.http.get(f"{PATH}/{made.id}")).json()["created_at"] == made.created_at
    changed = await stub.UpdateConversation(
        pb.UpdateConversationRequest(id=made.id, metadata={"c": "3"}, delete_metadata=["a"])
    )
    assert dict(changed.conversation.metadata) == {"b": "2", "c": "3"}
    added = await stub.CreateConversationItems(
        pb.CreateConversationItemsRequest(
            conversation_id=made.id, items_json=['{"type": "web_search_call", "id": "web_1"}']
        )
    )
    assert len(added.warnings) == 1
    page = await stub.ListConversationItems(
        pb.ListConversationItemsRequest(conversation_id=made.id, order=pb.ITEM_ORDER_ASCENDING, limit=1)
    )
    assert page.has_more
    assert json.loads(page.items_json[0])["content"][0]["text"] == "typed"
    got = await stub.GetConversationItem(
        pb.GetConversationItemRequest(conversation_id=made.id, item_id="web_1")
    )
    assert json.loads(got.item_json) == {"id": "web_1", "type": "web_search_call", "status": "completed"}
    left = await stub.DeleteConversationItem(
        pb.DeleteConversationItemRequest(conversation_id=made.id, item_id="web_1")
    )
    assert left.conversation == changed.conversation
    assert (
        await stub.GetConversation(pb.GetConversationRequest(id=made.id))
    ).conversation == left.conversation
    await stub.DeleteConversation(pb.DeleteConversationRequest(id=made.id))
    for call in (
        stub.GetConversation(pb.GetConversationRequest(id=made.id)),
        stub.ListConversationItems(pb.ListConversationItemsRequest(conversation_id=made.id)),
    ):
        code, _, error = await outcome(call)
        assert (code, error.http_status, error.code) == ("NOT_FOUND", 404, "conversation_not_found")
    bad = pb.CreateConversationRequest(items_json=["{"])
    code, text, error = await outcome(stub.CreateConversation(bad))
    assert (code, error.http_status) == ("INVALID_ARGUMENT", 400)
    assert "items_json[0] is not valid JSON" in text


async def test_the_official_sdk(gateway):
    async with openai.AsyncOpenAI(base_url=f"{gateway.http.base_url}/v1", api_key="k", max_retries=0) as sdk:
        made = await sdk.conversations.create(metadata={"topic": "demo"}, items=[message("first")])
        await sdk.conversations.items.create(made.id, items=[message(str(n)) for n in range(3)])
        seen = [item async for item in sdk.conversations.items.list(made.id, limit=2, order="asc")]
        assert [item.content[0].text for item in seen] == ["first", "0", "1", "2"]
        item = await sdk.conversations.items.retrieve(seen[0].id, conversation_id=made.id)
        assert item.content[0].text == "first"
        assert (await sdk.conversations.update(made.id, metadata={"topic": "x"})).metadata == {"topic": "x"}
        await sdk.conversations.items.delete(seen[0].id, conversation_id=made.id)
        assert (await sdk.conversations.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await sdk.conversations.retrieve(made.id)


async def test_tenants_have_conversations_of_their_own():
    keys = [{"tenant": name, "key": f"key-{name}"} for name in "ab"]
    async with running_router(callers={"tenant_api_key": keys}) as gateway:
        as_a, as_b = ({"authorization": f"Bearer key-{name}"} for name in "ab")
        made = (await gateway.http.post(PATH, json={}, headers=as_a)).json()
        path = f"{PATH}/{made['id']}"
        assert (await gateway.http.get(path, headers=as_a)).status_code == 200
        for other in (as_b, {}):
            for method, url in (("GET", path), ("DELETE", path), ("GET", f"{path}/items")):
                answer = await gateway.http.request(method, url, headers=other)
                assert answer.status_code == (404 if other else 401)
        stub = conversations_pb2_grpc.ConversationsServiceStub(gateway.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetConversation(pb.GetConversationRequest(id=made["id"]))
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_a_full_router_refuses_conversations_in_their_own_form():
    async with running_router(admission={"max_concurrent_requests": 1, "queue_size": 0}) as gateway:
        name = await begun(gateway)
        path = f"{PATH}/{name}"
        stub = conversations_pb2_grpc.ConversationsServiceStub(gateway.channel)
        async with gateway.router.admission.permit():
            for method, url in (("POST", PATH), ("GET", path), ("GET", f"{path}/items"), ("DELETE", path)):
                answer = await gateway.http.request(method, url)
                assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
                assert isinstance(answer.json()["error"], str)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.GetConversation(pb.GetConversationRequest(id=name))
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await gateway.http.get(path)).status_code == 200


async def test_a_database_that_is_away_is_told_and_ends_nothing():
    history = {"history_backend": "redis", "redis_url": "redis://127.0.0.1:1"}
    async with running_router(history=history) as gateway:
        answer = await gateway.http.post(PATH, json={})
        assert answer.status_code == 500
        assert "try again" in answer.json()["error"]
        assert (await gateway.http.get("/liveness")).status_code == 200
