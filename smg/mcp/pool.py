"""Keeps sessions with MCP servers open between responses: one for each tenant, server and set of headers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from smg.errors import DependencyFailed, MissingPackage, Overloaded, Unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from smg.egress.guard import EgressGuard
    from smg.mcp.session import McpSession
    from smg.mcp.values import McpLimits, RemoteTool, ServerSpec

    Key = tuple[str, ServerSpec]


class SessionPool:
    """The sessions."""

    def __init__(self, limits: McpLimits, guard: EgressGuard) -> None:
        self._limits = limits
        self._guard = guard
        self._sessions: dict[Key, McpSession] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def size(self) -> int:
        """How many are open."""
        return len(self._sessions)

    @asynccontextmanager
    async def opened(
        self, tenant: str, spec: ServerSpec
    ) -> AsyncGenerator[tuple[McpSession, list[RemoteTool]]]:
        """A session and what its server offers, while the body runs.

        Raises:
            InvalidRequest: the server is where no client may send the gateway.
            DependencyFailed: it cannot be reached.
            Overloaded: too many sessions are in use.
            Unsupported: the SDK is not installed.
        """
        if not spec.is_configured and spec.url:
            self._guard.check_url(spec.url)
        key = tenant, spec
        # A session that was open already may have died since: then a new one is opened.
        for is_last in (False, True):
            is_fresh = key not in self._sessions or self._sessions[key].is_broken
            async with self._using(key) as session:
                try:
                    await session.open()
                    tools = await session.tools()
                except DependencyFailed:
                    if is_fresh or is_last:
                        raise
                    continue
                yield session, tools
                return

    @asynccontextmanager
    async def _using(self, key: Key) -> AsyncGenerator[McpSession]:
        session = self._take(key)
        session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            session.used_at = asyncio.get_running_loop().time()
            if session.is_broken and not session.users:
                self._drop(key, session)
            self._look_later()

    async def close(self) -> None:
        """Close all of them."""
        if self._timer is not None:
            self._timer.cancel()
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(
            *(session.close() for session in sessions), *self._closing, return_exceptions=True
        )

    def _take(self, key: Key) -> McpSession:
        known = self._sessions.get(key)
        if known is not None and not known.is_broken:
            return known
        if known is not None and not known.users:
            self._drop(key, known)
        self._make_room()
        session = self._sessions[key] = _new_session(key[1], self._limits, self._guard)
        return session

    def _make_room(self) -> None:
        if len(self._sessions) < self._limits.max_sessions:
            return
        idle = self._idle()
        if not idle:
            raise Overloaded(
                f"{len(self._sessions)} sessions with MCP servers are in use; no more are opened now",
                code="mcp_sessions_exhausted",
                retry_after_s=2,
            )
        self._drop(*min(idle, key=lambda entry: entry[1].used_at))

    def _idle(self) -> list[tuple[Key, McpSession]]:
        return [(key, session) for key, session in self._sessions.items() if not session.users]

    def _look_later(self) -> None:
        if self._timer is None and self._sessions:
            self._timer = asyncio.get_running_loop().call_later(self._limits.idle_s, self._look)

    def _look(self) -> None:
        self._timer = None
        before = asyncio.get_running_loop().time() - self._limits.idle_s
        self._drop_all((key, each) for key, each in self._idle() if each.used_at <= before)
        self._look_later()

    def _drop_all(self, entries: Iterable[tuple[Key, McpSession]]) -> None:
        for key, session in list(entries):
            self._drop(key, session)

    def _drop(self, key: Key, session: McpSession) -> None:
        if self._sessions.get(key) is session:
            del self._sessions[key]
        task = asyncio.get_running_loop().create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _new_session(spec: ServerSpec, limits: McpLimits, guard: EgressGuard) -> McpSession:
    try:
        from smg.mcp.session import McpSession
    except ImportError as error:
        raise Unsupported(
            "tools of MCP servers need the extra `mcp`, which this gateway has not installed: pip install 'smg[mcp]'",
            code="mcp_not_installed",
        ) from error
    return McpSession(spec, limits, guard)


def check_installed() -> None:
    """See that the SDK is there, for a router whose settings name servers.

    Raises:
        MissingPackage: it is not.
    """
    try:
        import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise MissingPackage("--mcp-config-path needs the package mcp: pip install 'smg[mcp]'") from error
