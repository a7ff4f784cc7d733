"""A session with one MCP server: opened, used by many at a time, closed, all by the task that owns it.

The SDK's scopes belong to the task that entered them; callers only wait for answers.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import PaginatedRequestParams

from smg.errors import DependencyFailed, InvalidRequest, SmgError
from smg.mcp.results import failed_result, tool_result
from smg.mcp.transport import GuardedTransport
from smg.mcp.values import RemoteTool

if TYPE_CHECKING:
    from smg.egress.guard import EgressGuard
    from smg.mcp.values import McpLimits, ServerSpec, ToolResult

logger = logging.getLogger(__name__)


class McpSession:
    """One session.

    Attributes:
        is_broken: something went wrong on its way; nobody should use it any more.
        users: how many responses use it now.
        used_at: loop time of the last use.
    """

    def __init__(self, spec: ServerSpec, limits: McpLimits, guard: EgressGuard) -> None:
        loop = asyncio.get_running_loop()
        self._spec = spec
        self._limits = limits
        self._guard = None if spec.is_configured else guard
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[ClientSession] = loop.create_future()
        self._owner = loop.create_task(self._own())
        self.is_broken = False
        self.users = 0
        self.used_at = loop.time()

    async def open(self) -> None:
        """Connect.

        Raises:
            InvalidRequest: the server is where no client may send the gateway.
            DependencyFailed: it cannot be reached, or does not speak MCP.
        """
        await self._session()

    async def tools(self) -> list[RemoteTool]:
        """What the server offers, at most so many.

        Raises:
            DependencyFailed: it does not say.
        """
        session = await self._session()
        limits = self._limits
        found: list[RemoteTool] = []
        cursor: str | None = None
        seen: set[str] = set()
        try:
            async with asyncio.timeout(limits.connect_timeout_s):
                for _ in range(limits.max_pages):
                    params = PaginatedRequestParams(cursor=cursor) if cursor else None
                    page = await session.list_tools(params=params)
                    found += [_remote(tool) for tool in page.tools]
                    cursor = page.next_cursor
                    if not cursor or cursor in seen or len(found) >= limits.max_tools:
                        break
                    seen.add(cursor)
        except (MCPError, TimeoutError, OSError, httpx2.HTTPError, RuntimeError) as error:
            self.is_broken = True
            raise self._failed(error) from error
        return found[: limits.max_tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool. What goes wrong is a result as well: the model is told of it."""
        limits = self._limits
        try:
            session = await self._session()
            async with asyncio.timeout(limits.call_timeout_s):
                result = await session.call_tool(name, arguments)
        except MCPError as error:
            return failed_result(str(error))
        except TimeoutError:
            return failed_result(f"the tool {name} has not answered within {limits.call_timeout_s:g} s")
        except SmgError as error:
            self.is_broken = True
            return failed_result(error.message)
        except Exception as error:  # noqa: BLE001 - whatever a server does is the tool's failure, not the response's
            self.is_broken = True
            logger.warning("MCP server %s: %s: %s", self._spec.label, type(error).__name__, error)
            return failed_result(f"the tool {name} could not be called: {_said(error)}")
        parts = getattr(result, "content", None) or ()
        structured = getattr(result, "structured_content", None)
        is_error = bool(getattr(result, "is_error", False))
        return tool_result(parts, structured, limits.max_result_bytes, is_error=is_error)

    async def close(self) -> None:
        """Say goodbye, and wait until all is closed."""
        self.is_broken = True
        self._closing.set()
        _, running = await asyncio.wait((self._owner,), timeout=self._limits.connect_timeout_s)
        if running:
            self._owner.cancel()
            await asyncio.wait((self._owner,))

    async def _session(self) -> ClientSession:
        if not self._ready.done():
            try:
                async with asyncio.timeout(self._limits.connect_timeout_s):
                    await asyncio.wait((self._ready,))
            except TimeoutError:
                self.is_broken = True
                self._owner.cancel()
                raise self._failed("no answer in time") from None
        try:
            return await asyncio.shield(self._ready)
        except SmgError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    async def _own(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                session = await self._connect(stack)
                self._ready.set_result(session)
                await self._closing.wait()
        except asyncio.CancelledError:
            self._give_up(self._failed("closed"))
            raise
        except BaseException as error:  # noqa: BLE001 - groups of the SDK's tasks come as they like; whoever waits is told
            self._give_up(_inner(error))
        finally:
            self.is_broken = True

    def _give_up(self, error: BaseException) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            # Retrieved here as well: perhaps nobody waits any more.
            self._ready.exception()

    async def _connect(self, stack: AsyncExitStack) -> ClientSession:
        spec = self._spec
        if spec.protocol == "stdio":
            program = StdioServerParameters(
                command=spec.command, args=[*spec.args], env=dict(spec.env) or None
            )
            streams = await stack.enter_async_context(stdio_client(program))
        elif spec.protocol == "sse":
            streams = await stack.enter_async_context(
                sse_client(spec.url, headers=dict(spec.headers), httpx_client_factory=self._client)
            )
        else:
            client = await stack.enter_async_context(self._client(dict(spec.headers)))
            streams = await stack.enter_async_context(streamable_http_client(spec.url, http_client=client))
        session = await stack.enter_async_context(ClientSession(*streams[:2]))
        await session.initialize()
        return session

    def _client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        limits = self._limits
        default = httpx2.Timeout(limits.connect_timeout_s, read=limits.call_timeout_s + 1)
        transport = GuardedTransport(self._guard, limits.max_body_bytes)
        return httpx2.AsyncClient(
            transport=transport, headers=headers, timeout=timeout or default, auth=auth, trust_env=False
        )

    def _failed(self, why: object) -> DependencyFailed:
        told = why if isinstance(why, str) else _said(why)
        return DependencyFailed(
            f"MCP server {self._spec.label!r} cannot be used: {told[:300]}", code="connect_mcp_server_failed"
        )


def _remote(tool: Any) -> RemoteTool:
    hints = tool.annotations
    return RemoteTool(
        tool.name, tool.description, tool.input_schema, bool(hints is not None and hints.read_only_hint)
    )


def _inner(error: BaseException) -> BaseException:
    """The cause inside the groups that task groups make: a refusal of the guard before anything else."""
    while isinstance(error, BaseExceptionGroup):
        causes = cast("BaseExceptionGroup[BaseException]", error).exceptions
        error = next((cause for cause in causes if _refusal(cause)), causes[0])
    return error


def _refusal(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_refusal, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, InvalidRequest)


def _said(error: object) -> str:
    return str(error) or type(error).__name__
