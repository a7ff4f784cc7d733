"""The tools of one response that servers run: connects to them, shows their tools to the model, makes calls."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from smg.errors import InvalidRequest
from smg.mcp.results import failed_result
from smg.mcp.values import ServerSpec
from smg.responses.approval import is_allowed, needs_approval
from smg.responses.tools import BUILTIN_ITEMS, Origin
from smg.validation.tools import MAX_NAME_CHARS, is_usable_name

if TYPE_CHECKING:
    from types import TracebackType

    from smg.mcp.config import ConfiguredServers
    from smg.mcp.pool import SessionPool
    from smg.mcp.session import McpSession
    from smg.mcp.values import RemoteTool, ToolResult
    from smg.responses.shapes import Json
    from smg.responses.tools import Toolbox
    from smg.responses.turn import ServerCall

# What a client may not set: the connection is the gateway's.
_OWN_HEADERS = frozenset(("host", "content-length", "transfer-encoding", "connection", "te", "upgrade"))
_SSE_PATH = "/sse"


class _Opened(NamedTuple):
    tool: Json
    session: McpSession
    offered: list[RemoteTool]


class ServerTools:
    """As an `async with` body: the servers that a request declares, connected to.

    Attributes:
        lists: label and tools of each declared server, as items show them.
    """

    def __init__(
        self, pool: SessionPool, configured: ConfiguredServers, tenant: str, tools: list[Json], box: Toolbox
    ) -> None:
        """Args: box gets a function for each tool that the model may call."""
        self._pool = pool
        self._configured = configured
        self._tenant = tenant
        self._tools = tools
        self._box = box
        self._stack = AsyncExitStack()
        self._sessions: dict[str, McpSession] = {}
        self._asking: set[str] = set()
        self.lists: list[tuple[str, list[Json]]] = []

    async def __aenter__(self) -> Self:
        """Connect to all of them at a time.

        Raises:
            SmgError: one cannot be used.
        """
        declared = [tool for tool in self._tools if tool["type"] == "mcp"]
        builtin = [tool for tool in self._tools if tool["type"] in self._configured.builtins]
        if not declared and not builtin:
            return self
        try:
            specs = [(tool, self._spec(tool)) for tool in declared]
            opened = await self._open([(tool, spec) for tool, spec in specs if spec is not None])
            for tool in declared:
                self._add(tool, next((each for each in opened if each.tool is tool), None))
            for each in await self._open(
                [(tool, self._configured.builtins[tool["type"]].spec) for tool in builtin]
            ):
                self._add_builtin(each)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def needs_approval(self, name: str) -> bool:
        """Somebody must say yes before this function is called."""
        return name in self._asking

    def name_of(self, label: str, tool: str) -> str | None:
        """The function that the model sees of a server's tool; None where it sees none."""
        for name, origin in self._box.origins.items():
            if origin.server_label == label and origin.name == tool:
                return name
        return None

    async def call(self, call: ServerCall) -> ToolResult:
        """Make a call. It never raises: what goes wrong is its result."""
        session = self._sessions.get(call.name)
        if session is None:
            return failed_result(f"there is no tool {call.name}")
        try:
            arguments: Any = json.loads(call.arguments)
        except ValueError as error:
            return failed_result(f"the arguments are not JSON: {error}")
        if not isinstance(arguments, dict):
            return failed_result("the arguments are not a JSON object")
        return await session.call(call.origin.name, arguments)  # pyright: ignore[reportUnknownArgumentType]

    async def _open(self, wanted: list[tuple[Json, ServerSpec]]) -> list[_Opened]:
        """Connect; the sessions stay open until the body ends."""

        async def one(tool: Json, spec: ServerSpec) -> _Opened:
            opened = self._pool.opened(self._tenant, spec)
            session, offered = await opened.__aenter__()
            self._stack.push_async_exit(opened)
            return _Opened(tool, session, offered)

        tasks = [asyncio.ensure_future(one(tool, spec)) for tool, spec in wanted]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            # What connected although another could not has to be closed as well.
            await asyncio.gather(*tasks, return_exceptions=True)

    def _spec(self, tool: Json) -> ServerSpec | None:
        """Where a declared server is; None for one that nobody knows."""
        url = tool.get("server_url")
        if not url:
            return self._configured.servers.get(tool["server_label"].lower())
        headers = dict(tool.get("headers") or {})
        for name, value in headers.items():
            if name.lower() in _OWN_HEADERS or not name.isascii() or not value.isprintable():
                raise InvalidRequest(f"tools: the header {name[:60]!r} cannot be sent", param="tools.headers")
        token = tool.get("authorization")
        if token:
            headers["Authorization"] = token if " " in token else f"Bearer {token}"
        path = url.partition("?")[0].rstrip("/")
        return ServerSpec(
            tool["server_label"],
            "sse" if path.endswith(_SSE_PATH) else "streamable",
            url=url,
            headers=tuple(headers.items()),
        )

    def _add(self, tool: Json, opened: _Opened | None) -> None:
        label: str = tool["server_label"]
        shown: list[Json] = []
        for offered in opened.offered if opened is not None else ():
            name, is_read_only = offered.name, offered.is_read_only
            if not is_allowed(tool, name, is_read_only=is_read_only) or not _is_usable(name):
                continue
            shown.append(
                {
                    "name": name,
                    "description": offered.description,
                    "input_schema": offered.input_schema,
                    "annotations": {"read_only": is_read_only},
                }
            )
            # Two servers, or a client's own function, may have the same name.
            seen_as = f"{label}.{name}" if name in self._box.origins else name
            self._show(seen_as, offered, Origin("server", name, server_label=label, item_type="mcp_call"))
            if opened is not None:
                self._sessions[seen_as] = opened.session
            if needs_approval(tool, name, is_read_only=is_read_only):
                self._asking.add(seen_as)
        self.lists.append((label, shown))

    def _add_builtin(self, opened: _Opened) -> None:
        kind = opened.tool["type"]
        builtin = self._configured.builtins[kind]
        for offered in opened.offered:
            if offered.name == builtin.tool_name and _is_usable(offered.name):
                origin = Origin(
                    "server", offered.name, server_label=builtin.spec.label, item_type=BUILTIN_ITEMS[kind]
                )
                seen_as = f"{kind}.{offered.name}" if offered.name in self._box.origins else offered.name
                self._show(seen_as, offered, origin)
                self._sessions[seen_as] = opened.session

    def _show(self, seen_as: str, offered: RemoteTool, origin: Origin) -> None:
        function: Json = {"name": seen_as}
        if offered.description:
            function["description"] = offered.description
        function["parameters"] = offered.input_schema
        self._box.add(function, origin)


def _is_usable(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME_CHARS and is_usable_name(name)
