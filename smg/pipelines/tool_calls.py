"""Makes the calls of a response that servers run: within its allowance, at the same time, in the order of the events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from smg.mcp.results import failed_result
from smg.responses.builtin_items import STEPS, begun_item, ended_item
from smg.responses.items import new_item_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.mcp.values import ToolResult
    from smg.pipelines.server_tools import ServerTools
    from smg.responses.output import Output
    from smg.responses.shapes import Json
    from smg.responses.turn import ServerCall

MAX_CALLS = 10
SAME_FAILURES = 3


class MadeCall(NamedTuple):
    """A call with what it has brought."""

    call: ServerCall
    result: ToolResult


class ToolCalls:
    """The calls of one response.

    Attributes:
        is_over: calls were left out, because the allowance was used up.
    """

    def __init__(self, output: Output, tools: ServerTools, limit: int | None) -> None:
        """Args: limit is the client's own; above MAX_CALLS it means that."""
        self._output = output
        self._tools = tools
        self._limit = limit
        self._left = MAX_CALLS if limit is None else min(limit, MAX_CALLS)
        self._failures: dict[tuple[str, str, str], int] = {}
        self.is_over = False

    @property
    def is_clients_limit(self) -> bool:
        """The client has set the allowance itself."""
        return self._limit is not None and self._limit <= MAX_CALLS

    async def make(self, calls: Sequence[ServerCall], approved: Sequence[str] = ()) -> list[MadeCall]:
        """Make those calls that fit.

        Args:
            calls: in the order of the model.
            approved: for each the request that was approved; empty where none was needed.
        """
        fitting = list(calls[: self._left])
        self.is_over = self.is_over or len(fitting) < len(calls)
        self._left -= len(fitting)
        made: list[MadeCall] = []
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._result(call)) for call in fitting]
            for number, (call, task) in enumerate(zip(fitting, running, strict=True)):
                request = approved[number] if approved else ""
                result = await self._show(call, task, request)
                made.append(MadeCall(call, result))
        return made

    def ask(self, calls: Sequence[ServerCall]) -> None:
        """Ask for approval of calls."""
        for call in calls:
            self._output.add(
                {
                    "id": new_item_id("mcp_approval_request"),
                    "type": "mcp_approval_request",
                    "server_label": call.origin.server_label,
                    "name": call.origin.name,
                    "arguments": call.arguments,
                }
            )

    async def _result(self, call: ServerCall) -> ToolResult:
        same = next(
            (text for (name, given, text), times in self._failures.items()
             if (name, given) == (call.name, call.arguments) and times >= SAME_FAILURES),
            None,
        )  # fmt: skip
        if same is not None:
            return failed_result(
                f"not called again: it has failed {SAME_FAILURES} times with these arguments: {same}"
            )
        result = await self._tools.call(call)
        if result.is_error:
            key = call.name, call.arguments, result.text
            self._failures[key] = self._failures.get(key, 0) + 1
        return result

    async def _show(self, call: ServerCall, task: asyncio.Task[ToolResult], request: str) -> ToolResult:
        if call.origin.item_type in STEPS:
            return await self._show_builtin(call, task)
        output, label = self._output, call.origin.server_label
        item_id = new_item_id("mcp_call")
        begun: Json = {
            "id": item_id,
            "type": "mcp_call",
            "name": call.origin.name,
            "status": "in_progress",
            "arguments": "",
            "server_label": label,
        }
        place = output.open(begun)
        at: Json = {"output_index": place, "item_id": item_id}
        output.emit("response.mcp_call.in_progress", at)
        output.emit("response.mcp_call_arguments.delta", {**at, "delta": call.arguments})
        output.emit("response.mcp_call_arguments.done", {**at, "arguments": call.arguments})
        self._flush()
        result = await task
        ended: Json = {
            "type": "mcp_call",
            "id": item_id,
            "status": "failed" if result.is_error else "completed",
            "arguments": call.arguments,
        }
        if result.is_error:
            output.emit("response.mcp_call.failed", {**at, "error": result.text})
            ended["error"] = {"type": "mcp_tool_execution_error", "content": result.text}
        else:
            output.emit("response.mcp_call.completed", at)
        ended |= {
            "name": call.origin.name,
            "output": "" if result.is_error else result.text,
            "server_label": label,
        }
        if request:
            ended["approval_request_id"] = request
        output.close(place, ended)
        self._flush()
        return result

    async def _show_builtin(self, call: ServerCall, task: asyncio.Task[ToolResult]) -> ToolResult:
        output, kind = self._output, call.origin.item_type
        item_id = new_item_id(kind)
        place = output.open(begun_item(kind, item_id, call.arguments))
        at: Json = {"output_index": place, "item_id": item_id}
        output.emit(f"response.{kind}.in_progress", at)
        output.emit(f"response.{kind}.{STEPS[kind]}", at)
        self._flush()
        result = await task
        output.emit(f"response.{kind}.completed", at)
        output.close(place, ended_item(kind, item_id, call.arguments, result.text))
        self._flush()
        return result

    def _flush(self) -> None:
        if self._output.stream is not None:
            self._output.stream.outlet.flush()
