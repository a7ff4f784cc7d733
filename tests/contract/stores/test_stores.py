"""What every store does, on real servers: SQLite, PostgreSQL, Redis, Valkey, and memory."""

import asyncio
import uuid
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from smg.errors import InvalidRequest, ItemTaken, NotFound
from smg.storage.memory import MemoryBounds, MemoryStore
from smg.storage.records import Conversation, StoredItem, StoredResponse
from smg.storage.redis import RedisStore
from smg.storage.sql import SqlStore
from tests.contract.stores.conftest import sqlalchemy_url
from tests.contract.stores.servers import REDIS, VALKEY, running_redis

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOMY = MemoryBounds(responses=1000, items=100_000, size_bytes=1 << 30)


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["memory", "sqlite", "postgres", "redis", "valkey"]
)
async def store(request, tmp_path_factory):
    async with AsyncExitStack() as stack:
        made = await made_store(request.param, stack, tmp_path_factory, request)
        await made.open()
        yield made
        await made.close()


async def made_store(kind, stack, tmp_path_factory, request):
    if kind == "memory":
        return MemoryStore(ROOMY)
    if kind == "sqlite":
        path = tmp_path_factory.mktemp("history") / "history.db"
        return SqlStore(f"sqlite+aiosqlite:///{path}", timeout_s=10)
    if kind == "postgres":
        return SqlStore(sqlalchemy_url(request.getfixturevalue("postgres").url), timeout_s=10)
    server = await stack.enter_async_context(running_redis({"redis": REDIS, "valkey": VALKEY}[kind]))
    return RedisStore(server.url, timeout_s=10, retention_days=1)


@pytest.fixture
def tenant():
    """A new one for each test: they share a server."""
    return f"tenant {{{uuid.uuid4()}}}:*"


def response(name="resp_1", **fields):
    return StoredResponse(
        **{"id": name, "created_at": 7, "body_json": '{"a":1}', "input_json": "[2]", **fields}
    )


def item(name, text=None):
    return StoredItem(name, 5, text or f'{{"id":"{name}"}}')


async def conversation(store, tenant, name="conv_1", *ids, **metadata):
    """A conversation with items of these ids."""
    await store.put_conversation(tenant, Conversation(name, 3, metadata))
    if ids:
        await store.add_items(tenant, name, [item(each) for each in ids])


async def ids_of(store, tenant, name="conv_1"):
    page = await store.items(tenant, name, 1000, newest_first=False)
    assert not page.has_more
    return [each.id for each in page.items]


async def test_a_response_is_what_was_put(store, tenant):
    put = response(previous_id="resp_0", conversation_id="conv_0")
    await store.put_response(tenant, put)
    assert await store.response(tenant, "resp_1") == put
    later = response(body_json='{"a":2}')
    await store.put_response(tenant, later)
    assert await store.response(tenant, "resp_1") == later
    assert await store.delete_response(tenant, "resp_1")
    assert not await store.delete_response(tenant, "resp_1")
    assert await store.response(tenant, "resp_1") is None


async def test_only_what_runs_is_renewed_and_replaced_and_it_ends_once(store, tenant):
    await conversation(store, tenant)
    running = [response(f"resp_{n}", conversation_id="conv_1", lease_until=5) for n in range(3)]
    for each in running:
        await store.put_response(tenant, each)
    await store.put_response(tenant, response("resp_ended"))
    await store.put_response(tenant + "x", response("resp_0"))
    keys = [(tenant, f"resp_{n}") for n in range(3)]
    others = [(tenant, "resp_ended"), (tenant, "resp_no"), (tenant + "x", "resp_0")]
    assert await store.renew([*keys, *others], 9) == set(keys)
    assert [(await store.response(*key)).lease_until for key in keys] == [9, 9, 9]
    assert await store.renew([], 9) == set()

    ended = response("resp_0", body_json='{"a":3}', conversation_id="conv_1")
    assert await store.replace_running(tenant, ended, [item("a"), item("b")])
    assert not await store.replace_running(tenant, response("resp_0", body_json="{}"), [item("c")])
    assert not await store.replace_running(tenant, response("resp_no", lease_until=9), [item("c")])
    assert await store.delete_response(tenant, "resp_1")
    assert not await store.replace_running(tenant, running[1])
    assert await store.response(tenant, "resp_0") == ended
    assert await store.response(tenant, "resp_1") is None
    assert await ids_of(store, tenant) == ["a", "b"]
    assert await store.renew(keys, 11) == {keys[2]}


async def test_of_many_that_end_a_response_one_does(store, tenant):
    await store.put_response(tenant, response(lease_until=5))
    ends = [response(body_json=f'{{"a":{n}}}') for n in range(6)]
    took = await asyncio.gather(*(store.replace_running(tenant, end) for end in ends))
    assert took.count(True) == 1
    assert await store.response(tenant, "resp_1") == ends[took.index(True)]


@pytest.mark.parametrize("text", ['"\\u0000"', '"🙂 \\ud800 \' \\" %s :x"', '"' + "x" * 3_000_000 + '"'])
async def test_texts_come_back_as_they_were(store, tenant, text):
    put = response(body_json=text, input_json=f"[{text}]")
    await conversation(store, tenant)
    await store.put_response(tenant, put)
    assert await store.response(tenant, "resp_1") == put
    await store.add_items(tenant, "conv_1", [item("a", text)])
    assert await store.item(tenant, "conv_1", "a") == item("a", text)


async def test_tenants_do_not_see_each_other(store, tenant):
    await store.put_response(tenant, response())
    await conversation(store, tenant, "conv_1", "a")
    for other in ("", tenant + "x", tenant[:-1]):
        assert await store.response(other, "resp_1") is None
        assert not await store.delete_response(other, "resp_1")
        assert await store.conversation(other, "conv_1") is None
        assert await store.items(other, "conv_1", 5, newest_first=True) is None
        assert await store.item(other, "conv_1", "a") is None
        assert await store.add_items(other, "conv_1", [item("b")]) is None
        assert await store.merge_metadata(other, "conv_1", {"a": "b"}, 16) is None
        assert not await store.delete_conversation(other, "conv_1")
        with pytest.raises(NotFound):
            await store.chain(other, "resp_1", 10)
        await store.put_conversation(other, Conversation("conv_other", 1))
        with pytest.raises(NotFound):
            await store.add_items(other, "conv_other", ["a"])
        await store.delete_conversation(other, "conv_other")
    assert await ids_of(store, tenant) == ["a"]


async def test_a_chain_is_all_that_a_response_follows(store, tenant):
    for number in range(150):
        before = f"resp_{number - 1}" if number else ""
        await store.put_response(tenant, response(f"resp_{number}", previous_id=before))
    chain = await store.chain(tenant, "resp_149", 1000)
    assert [each.id for each in chain] == [f"resp_{number}" for number in range(150)]
    chain = await store.chain(tenant, "resp_149", 3)
    assert [each.id for each in chain] == ["resp_147", "resp_148", "resp_149"]


async def test_a_chain_with_a_link_missing_names_it(store, tenant):
    await store.put_response(tenant, response("resp_0"))
    await store.put_response(tenant, response("resp_1", previous_id="resp_0"))
    await store.put_response(tenant, response("resp_2", previous_id="resp_1"))
    await store.delete_response(tenant, "resp_0")
    with pytest.raises(NotFound) as caught:
        await store.chain(tenant, "resp_2", 10)
    assert caught.value.param == "resp_0"
    with pytest.raises(NotFound) as caught:
        await store.chain(tenant, "resp_9", 10)
    assert caught.value.param == "resp_9"


async def test_a_chain_that_bites_its_tail_ends(store, tenant):
    await store.put_response(tenant, response("resp_0", previous_id="resp_1"))
    await store.put_response(tenant, response("resp_1", previous_id="resp_0"))
    assert [each.id for each in await store.chain(tenant, "resp_1", 100)] == ["resp_0", "resp_1"]


async def test_metadata_is_merged_and_bounded(store, tenant):
    await conversation(store, tenant, a="1", b="2")
    merged = await store.merge_metadata(tenant, "conv_1", {"b": None, "c": "", "none": None}, 2)
    assert dict(merged.metadata) == {"a": "1", "c": ""}
    assert (merged.id, merged.created_at) == ("conv_1", 3)
    with pytest.raises(InvalidRequest, match="3 properties; at most 2"):
        await store.merge_metadata(tenant, "conv_1", {"d": "x"}, 2)
    # One that goes makes room for one that comes.
    await store.merge_metadata(tenant, "conv_1", {"d": "🙂", "a": None}, 2)
    assert dict((await store.conversation(tenant, "conv_1")).metadata) == {"c": "", "d": "🙂"}


async def test_items_are_paged_in_both_directions(store, tenant):
    names = [f"item_{number}" for number in range(5)]
    await conversation(store, tenant, "conv_1", *names)
    for newest_first, expected in ((False, names), (True, names[::-1])):
        seen, after = [], ""
        while True:
            page = await store.items(tenant, "conv_1", 2, newest_first=newest_first, after=after)
            seen += [each.id for each in page.items]
            if not page.has_more:
                break
            after = page.items[-1].id
        assert seen == expected
    last = await store.items(tenant, "conv_1", 2, newest_first=False, after="item_4")
    assert (list(last.items), last.has_more) == ([], False)
    with pytest.raises(NotFound) as caught:
        await store.items(tenant, "conv_1", 2, newest_first=False, after="item_9")
    assert caught.value.param == "item_9"


async def test_items_go_in_all_or_none(store, tenant):
    await conversation(store, tenant, "conv_1", "a")
    for items in ([item("b"), item("a")], [item("b"), item("b")], [item("b"), "b"]):
        with pytest.raises(ItemTaken):
            await store.add_items(tenant, "conv_1", items)
    with pytest.raises(NotFound) as caught:
        await store.add_items(tenant, "conv_1", [item("b"), "nobody"])
    assert caught.value.param == "nobody"
    assert await ids_of(store, tenant) == ["a"]
    assert await store.add_items(tenant, "conv_1", []) == []


async def test_an_item_may_be_in_several_conversations(store, tenant):
    await conversation(store, tenant, "conv_1", "a", "b")
    await conversation(store, tenant, "conv_2")
    # Whoever comes first says what it is.
    added = await store.add_items(tenant, "conv_2", ["b", item("a", '"other"'), item("c")])
    assert added == [item("b"), item("a"), item("c")]
    assert await store.remove_item(tenant, "conv_1", "a")
    assert not await store.remove_item(tenant, "conv_1", "a")
    assert await store.item(tenant, "conv_1", "a") is None
    assert await store.item(tenant, "conv_2", "a") == item("a")
    assert await store.delete_conversation(tenant, "conv_1")
    assert await ids_of(store, tenant, "conv_2") == ["b", "a", "c"]
    await conversation(store, tenant, "conv_3")
    assert await store.add_items(tenant, "conv_3", ["a"]) == [item("a")]


async def test_an_item_that_is_in_no_conversation_is_gone(store, tenant):
    await conversation(store, tenant, "conv_1", "a", "b")
    await conversation(store, tenant, "conv_2")
    await store.remove_item(tenant, "conv_1", "a")
    await store.delete_conversation(tenant, "conv_1")
    assert not await store.delete_conversation(tenant, "conv_1")
    for name in ("a", "b"):
        with pytest.raises(NotFound):
            await store.add_items(tenant, "conv_2", [name])
    assert await store.add_items(tenant, "conv_2", [item("a", '"new"')]) == [item("a", '"new"')]


async def test_a_response_brings_its_items_into_its_conversation(store, tenant):
    await conversation(store, tenant, "conv_1", "a")
    done = response(conversation_id="conv_1")
    await store.put_response(tenant, done, [item("a", '"again"'), item("b"), item("c"), item("b")])
    assert await ids_of(store, tenant) == ["a", "b", "c"]
    assert await store.item(tenant, "conv_1", "a") == item("a")
    await store.delete_response(tenant, "resp_1")
    assert await ids_of(store, tenant) == ["a", "b", "c"]


async def test_a_response_outlives_its_conversation(store, tenant):
    await conversation(store, tenant)
    await store.delete_conversation(tenant, "conv_1")
    await store.put_response(tenant, response(conversation_id="conv_1"), [item("a")])
    assert await store.response(tenant, "resp_1")
    assert await store.items(tenant, "conv_1", 5, newest_first=True) is None
    await store.put_response(tenant, response("resp_2"), [item("a")])  # of no conversation


async def test_writers_at_once_lose_nothing_and_keep_their_order(store, tenant):
    await conversation(store, tenant)

    async def write(writer):
        for number in range(8):
            new = [item(f"{writer}.{number}.{part}") for part in "xyz"]
            if number % 2:
                await store.add_items(tenant, "conv_1", new)
            else:
                done = response(f"resp_{writer}_{number}", conversation_id="conv_1")
                await store.put_response(tenant, done, new)

    await asyncio.gather(*map(write, range(8)))
    found = await ids_of(store, tenant)
    assert len(found) == 8 * 8 * 3
    for writer in range(8):
        own = [name for name in found if name.startswith(f"{writer}.")]
        assert own == [f"{writer}.{number}.{part}" for number in range(8) for part in "xyz"]
    # What was added together stands together.
    assert all(found[n][:-1] == found[n + 1][:-1] == found[n + 2][:-1] for n in range(0, len(found), 3))


async def test_the_same_item_from_many_is_taken_once(store, tenant):
    await conversation(store, tenant)

    async def add():
        try:
            await store.add_items(tenant, "conv_1", [item("a")])
        except ItemTaken:
            return 0
        return 1

    assert sum(await asyncio.gather(*(add() for _ in range(8)))) == 1
    assert await ids_of(store, tenant) == ["a"]


async def test_metadata_from_many_is_all_there(store, tenant):
    await conversation(store, tenant)
    await asyncio.gather(
        *(store.merge_metadata(tenant, "conv_1", {f"key{n}": str(n)}, 16) for n in range(16))
    )
    assert len((await store.conversation(tenant, "conv_1")).metadata) == 16


async def test_a_long_list_of_items(store, tenant):
    await conversation(store, tenant)
    many = [item(f"item_{number}") for number in range(1300)]
    await store.put_response(tenant, response(conversation_id="conv_1"), many)
    page = await store.items(tenant, "conv_1", 2000, newest_first=False)
    assert page.items == many
    assert await store.delete_conversation(tenant, "conv_1")


async def test_what_is_old_is_purged(store, tenant):
    if isinstance(store, RedisStore):
        pytest.skip("keys expire by themselves")
    await store.put_response(tenant, response("resp_old", created_at=10))
    await store.put_response(tenant, response("resp_new", created_at=10_000))
    await store.put_conversation(tenant, Conversation("conv_old", 10))
    await store.add_items(tenant, "conv_old", [item("a")])
    await store.put_conversation(tenant, Conversation("conv_new", 10_000))
    assert await store.purge(5_000) >= 2
    assert await store.response(tenant, "resp_old") is None
    assert await store.response(tenant, "resp_new")
    assert await store.conversation(tenant, "conv_old") is None
    with pytest.raises(NotFound):
        await store.add_items(tenant, "conv_new", ["a"])
