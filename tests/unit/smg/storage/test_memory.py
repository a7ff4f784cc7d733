"""The bounds of the store in memory. What it does else is in tests/contract/stores."""

import pytest

from smg.errors import NotFound
from smg.storage.memory import MemoryBounds, MemoryStore
from smg.storage.records import Conversation, StoredItem, StoredResponse

WIDE = {"responses": 1000, "items": 1000, "size_bytes": 1_000_000}


def store(clock=lambda: 0.0, **bounds):
    return MemoryStore(MemoryBounds(**{**WIDE, **bounds}), clock)


def response(name, text="{}"):
    return StoredResponse(name, 1, text)


async def kept(history, count):
    return [n for n in range(count) if await history.response("t", f"r{n}")]


async def test_responses_that_were_not_used_for_longest_go_first():
    history = store(responses=3)
    for number in range(3):
        await history.put_response("t", response(f"r{number}"))
    await history.response("t", "r0")
    await history.put_response("t", response("r3"))
    assert await kept(history, 4) == [0, 2, 3]


async def test_a_conversation_goes_with_its_items():
    history = store(items=4)
    for number in range(3):
        await history.put_conversation("t", Conversation(f"c{number}", 1))
        items = [StoredItem(f"c{number}.{n}", 1, "{}") for n in range(2)]
        await history.add_items("t", f"c{number}", items)
    assert await history.conversation("t", "c0") is None
    assert history.item_count == 4
    with pytest.raises(NotFound):
        await history.add_items("t", "c1", ["c0.0"])


async def test_the_bytes_are_bounded_and_counted_back():
    history = store(size_bytes=50_000)
    for number in range(100):
        await history.put_response("t", response(f"r{number}", "x" * 1000))
        assert history.size_bytes <= 50_000
    await history.put_conversation("t", Conversation("c", 1, {"a": "b"}))
    await history.add_items("t", "c", [StoredItem("i", 1, "x" * 1000)])
    await history.merge_metadata("t", "c", {"a": None, "c": "d" * 100}, 16)
    await history.delete_conversation("t", "c")
    for number in range(100):
        await history.delete_response("t", f"r{number}")
    assert (history.size_bytes, history.item_count) == (0, 0)


async def test_a_response_put_again_is_counted_once():
    history = store()
    await history.put_response("t", response("r", "x" * 500))
    before = history.size_bytes
    await history.put_response("t", response("r", "x" * 500))
    assert history.size_bytes == before


async def test_what_was_not_written_for_too_long_is_unknown():
    now = 0.0
    history = store(lambda: now, age_s=10)
    await history.put_response("t", response("r0"))
    await history.put_conversation("t", Conversation("c", 1))
    now = 9.0
    await history.add_items("t", "c", [StoredItem("i", 1, "{}")])
    now = 11.0
    assert await history.response("t", "r0") is None
    assert await history.item("t", "c", "i")
    now = 20.0
    assert await history.conversation("t", "c") is None
    await history.put_response("t", response("r1"))
    assert history.item_count == 0
