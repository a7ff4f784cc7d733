"""One streamed response with two calls of a tool, and the check that all of it was kept."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import httpx

RESPONSES, CONVERSATIONS = "/v1/responses", "/v1/conversations"
KINDS = ["message", "mcp_list_tools", "mcp_call", "mcp_call", "message"]
_CALL = '[[tool:add:{"a": %d, "b": %d}]]'


class Turn(NamedTuple):
    """A response that has ended.

    Attributes:
        number: which.
        conversation: id of the conversation that it is part of.
        response: its object, as the last event has it.
        duration_s: from the request to the last event.
    """

    number: int
    conversation: str
    response: dict[str, Any]
    duration_s: float


async def streamed(http: httpx.AsyncClient, mcp_url: str, number: int) -> Turn:
    """A response with two calls, in a conversation of its own.

    Raises:
        AssertionError: its stream is not whole.
    """
    made = await http.post(CONVERSATIONS, json={})
    conversation: str = made.json()["id"]
    first, second = _CALL % (number, 1), _CALL % (number, 2)
    tool = {"type": "mcp", "server_label": "sums", "server_url": mcp_url, "require_approval": "never"}
    body = {
        "model": "m",
        "input": f"{first}[[next]]{second}[[next]][[say:all of {number} is done]]",
        "stream": True,
        "conversation": conversation,
        "tools": [tool],
    }
    began_at, numbers, last = time.perf_counter(), list[int](), dict[str, Any]()
    async with http.stream("POST", RESPONSES, json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                last = json.loads(line[6:])
                numbers.append(last["sequence_number"])
    assert last["type"] == "response.completed", last
    assert numbers == list(range(len(numbers))), "events are missing"
    return Turn(number, conversation, last["response"], time.perf_counter() - began_at)


async def check_kept(http: httpx.AsyncClient, turn: Turn) -> int:
    """Read what was kept of a response. Returns the number of items.

    Raises:
        AssertionError: something of it is missing, or there is too much.
    """
    stored, page = await asyncio.gather(
        http.get(f"{RESPONSES}/{turn.response['id']}"),
        http.get(f"{CONVERSATIONS}/{turn.conversation}/items?order=asc&limit=100"),
    )
    items: list[dict[str, Any]] = page.json()["data"]
    output: list[dict[str, Any]] = stored.json()["output"]
    assert [item["type"] for item in items] == KINDS, items
    assert [item["id"] for item in items[1:]] == [item["id"] for item in output], "kept apart"
    assert [item["id"] for item in output] == [item["id"] for item in turn.response["output"]], (
        "told otherwise"
    )
    calls = [item for item in items if item["type"] == "mcp_call"]
    assert [call["output"] for call in calls] == [str(turn.number + 1), str(turn.number + 2)], calls
    assert items[-1]["content"][0]["text"] == f"all of {turn.number} is done", items[-1]
    return len(items)
