"""Makes the sessions and reads the file that the settings name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from smg.egress.guard import EgressGuard
from smg.errors import BadConfiguration
from smg.mcp.config import NO_SERVERS, read_config
from smg.mcp.pool import SessionPool, check_installed
from smg.mcp.values import McpLimits

if TYPE_CHECKING:
    from smg.mcp.config import ConfiguredServers
    from smg.settings.mcp import McpSettings


def make_sessions(settings: McpSettings, *, has_tenants: bool) -> SessionPool:
    """No session yet, and where clients may send the gateway for one.

    Args:
        settings: bounds and rules.
        has_tenants: callers are told apart by keys: then they are not trusted with the gateway's own network.
    """
    decided = settings.mcp_private_addresses
    guard = EgressGuard(
        "server_url",
        allows_private=decided == "allow" or (decided == "auto" and not has_tenants),
        allowed_hosts=settings.mcp_allowed_hosts,
    )
    limits = McpLimits(
        connect_timeout_s=settings.mcp_connect_timeout_secs,
        call_timeout_s=settings.mcp_tool_timeout_secs,
        max_result_bytes=settings.mcp_max_result_bytes,
        max_tools=settings.mcp_max_tools,
        max_sessions=settings.mcp_max_sessions,
        idle_s=settings.mcp_idle_secs,
    )
    return SessionPool(limits, guard)


def read_servers(settings: McpSettings) -> ConfiguredServers:
    """The servers that the operator has named.

    Raises:
        BadConfiguration: the file cannot be used.
        MissingPackage: the SDK is not installed.
    """
    if settings.mcp_config_path is None:
        return NO_SERVERS
    check_installed()
    try:
        return read_config(Path(settings.mcp_config_path))
    except ValueError as error:
        raise BadConfiguration(f"--mcp-config-path: {error}") from error
