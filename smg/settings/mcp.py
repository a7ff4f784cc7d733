"""Settings of the tools that other servers run (MCP), and of where clients may send the gateway for them."""

from __future__ import annotations

from typing import Literal

from smg.settings.fields import Section, setting

_KIB = 1024


class McpSettings(Section):
    """Which MCP servers may be used, and what they may cost."""

    mcp_config_path: str | None = setting(
        None, "YAML file of MCP servers that requests may name without an address.", metavar="PATH"
    )
    mcp_private_addresses: Literal["auto", "allow", "refuse"] = setting(
        "auto",
        "Whether a client's server_url may lead to private and loopback addresses. "
        "'auto': yes, unless keys of tenants are configured.",
    )
    mcp_allowed_hosts: tuple[str, ...] = setting(
        (),
        "Hosts that alone a client's server_url may name; '.example.com' allows all below it.",
        metavar="HOST",
    )
    mcp_connect_timeout_secs: float = setting(
        10.0, "Longest time to connect to an MCP server and list its tools, in seconds.", gt=0
    )
    mcp_tool_timeout_secs: float = setting(60.0, "Longest time of one tool call, in seconds.", gt=0)
    mcp_max_result_bytes: int = setting(
        256 * _KIB, "Most bytes of one tool's result; the rest is cut off.", metavar="BYTES", ge=_KIB
    )
    mcp_max_tools: int = setting(512, "Most tools of one server that a model is shown.", ge=1)
    mcp_max_sessions: int = setting(256, "Most sessions with MCP servers open at a time.", ge=1)
    mcp_idle_secs: float = setting(
        300.0, "Seconds after which a session with an MCP server that nobody uses is closed.", gt=0
    )
