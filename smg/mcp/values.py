"""Plain values of MCP: where a server is, what it offers, what a call has brought."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Protocol = Literal["streamable", "sse", "stdio"]


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """Where a server is, and how it is spoken to.

    Attributes:
        label: its name in messages.
        protocol: the transport.
        url: for the transports over HTTP.
        headers: names and values that go with every request; they may be secret.
        command: the program, for stdio.
        args: of the program.
        env: of the program, beside the least that the SDK passes on.
        is_configured: by the operator, so that no guard looks at its address.
    """

    label: str
    protocol: Protocol
    url: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    is_configured: bool = False


class RemoteTool(NamedTuple):
    """A tool of a server.

    Attributes:
        name: the server's.
        description: None where it says nothing.
        input_schema: JSON Schema of its arguments.
        is_read_only: it says of itself that it changes nothing.
    """

    name: str
    description: str | None
    input_schema: dict[str, Any]
    is_read_only: bool


class ToolResult(NamedTuple):
    """What a call has brought.

    Attributes:
        text: its text parts, a line break between them.
        content_json: its parts as JSON, as a model is shown them.
        is_error: the tool says that it failed, or it could not be called.
    """

    text: str
    content_json: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class McpLimits:
    """Every bound of what servers may cost.

    Attributes:
        connect_timeout_s: to connect and list the tools.
        call_timeout_s: of one call.
        max_result_bytes: of one call's result; more is cut off.
        max_body_bytes: of one answer over HTTP.
        max_tools: of one server; more are not shown.
        max_pages: of one server's list of tools.
        max_sessions: open at a time.
        idle_s: after which a session that nobody uses is closed.
    """

    connect_timeout_s: float = 10.0
    call_timeout_s: float = 60.0
    max_result_bytes: int = 256 * 1024
    max_body_bytes: int = 8 * 1024 * 1024
    max_tools: int = 512
    max_pages: int = 20
    max_sessions: int = 256
    idle_s: float = 300.0
