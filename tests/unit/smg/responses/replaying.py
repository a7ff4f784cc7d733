"""Puts a response together from the events of its stream, as a client does that trusts nothing but the events."""

import orjson

TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class Replayed:
    """Checks each event against those before it; `items` is what the events have made."""

    def __init__(self):
        self.items = []
        self.open = {}
        self.ended = None

    def feed(self, kind, data):
        event = orjson.loads(data) if isinstance(data, bytes) else data
        assert event["type"] == kind
        assert self.ended is None, "an event after the end"
        if kind == "response.output_item.added":
            assert event["output_index"] == len(self.items)
            self.items.append({**event["item"]})
            self.open[event["output_index"]] = event["item"]["id"]
        elif kind == "response.output_item.done":
            place = event["output_index"]
            assert self.open.pop(place) == event["item"]["id"]
            self._compare(self.items[place], event["item"])
            self.items[place] = event["item"]
        elif kind in TERMINAL:
            assert not self.open, "an item is not closed"
            self.ended = event["response"]
        elif "output_index" in event:
            self._inside(kind, event, self.items[event["output_index"]])

    def _inside(self, kind, event, item):
        assert self.open[event["output_index"]] == event.get("item_id", item["id"])
        if kind == "response.content_part.added":
            assert event["content_index"] == len(item["content"])
            item["content"] = [*item["content"], dict(event["part"])]
        elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
            item["content"][event["content_index"]]["text"] += event["delta"]
        elif kind in ("response.output_text.done", "response.reasoning_text.done"):
            assert item["content"][event["content_index"]]["text"] == event["text"]
        elif kind == "response.content_part.done":
            item["content"][event["content_index"]] = event["part"]
        elif kind in ("response.function_call_arguments.delta", "response.mcp_call_arguments.delta"):
            item["arguments"] += event["delta"]
        elif kind in ("response.function_call_arguments.done", "response.mcp_call_arguments.done"):
            assert item["arguments"] == event["arguments"]
        elif kind == "response.custom_tool_call_input.delta":
            item["input"] += event["delta"]
        elif kind == "response.custom_tool_call_input.done":
            assert item["input"] == event["input"]
        elif kind == "response.mcp_list_tools.completed":
            item["tools"] = event["tools"]

    @staticmethod
    def _compare(built, done):
        """What the deltas have made is what the item ends as."""
        for name in ("content", "arguments", "input", "tools", "name", "call_id"):
            if name in built:
                assert built[name] == done[name], name


def replayed(events):
    """All events of a stream, given as (type, event); the last must end it."""
    state = Replayed()
    for number, (kind, event) in enumerate(events):
        data = orjson.loads(event) if isinstance(event, bytes) else event
        assert data["sequence_number"] == number
        state.feed(kind, data)
    return state
