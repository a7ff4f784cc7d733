"""What only Redis has to keep: that everything expires, and that nothing is found of what is half gone."""

from contextlib import asynccontextmanager

import redis.asyncio

from smg.storage.records import Conversation, StoredItem, StoredResponse
from smg.storage.redis import RedisStore
from tests.contract.stores.servers import VALKEY, running_redis


@asynccontextmanager
async def store_and_client():
    """A store with a conversation of three items, and a client that sees its keys."""
    async with running_redis(VALKEY) as server:
        store = RedisStore(server.url, timeout_s=10, retention_days=1)
        client = redis.asyncio.Redis.from_url(server.url, decode_responses=True)
        await store.put_conversation("t", Conversation("conv", 1, {"a": "b"}))
        await store.add_items("t", "conv", [StoredItem(name, 1, "{}") for name in "xyz"])
        yield store, client
        await client.aclose()
        await store.close()


async def test_every_key_expires_whatever_was_written():
    async with store_and_client() as (store, client):
        await store.merge_metadata("t", "conv", {"c": "d"}, 16)
        running = StoredResponse("resp", 1, "{}", conversation_id="conv", lease_until=5)
        await store.put_response("t", running, [StoredItem("own", 1, "{}")])
        await store.renew([("t", "resp")], 9)
        await store.replace_running("t", StoredResponse("resp", 1, "{}", conversation_id="conv"))
        await store.put_conversation("t", Conversation("other", 1))
        await store.add_items("t", "other", ["x"])
        await store.remove_item("t", "conv", "y")
        keys = [key async for key in client.scan_iter()]
        assert {key.split(":")[2] for key in keys} == {"resp", "conv", "item"}
        assert all([await client.ttl(key) > 80_000 for key in keys])


async def test_an_item_whose_text_is_gone_is_skipped_and_forgotten():
    async with store_and_client() as (store, client):
        await client.hdel("smg:{t}:conv:conv:items", "y")
        page = await store.items("t", "conv", 10, newest_first=False)
        assert [each.id for each in page.items] == ["x", "z"]
        assert await client.zrange("smg:{t}:conv:conv:order", 0, -1) == ["x", "z"]
