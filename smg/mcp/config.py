"""Reads the file of --mcp-config-path: the servers that the operator has named.

servers:
  - name: search                # requests name it as server_label, without server_url
    protocol: streamable        # streamable, sse or stdio
    url: https://mcp.example/mcp
    token: secret               # sent as Authorization: Bearer
    headers: {X-Team: a}
    builtin_type: web_search_preview     # calls of this built-in tool go here …
    builtin_tool_name: web_search        # … to this tool
  - name: files
    protocol: stdio
    command: npx
    args: ["-y", "server-filesystem", "/data"]
    envs: {KEY: value}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from smg.mcp.values import Protocol, ServerSpec

if TYPE_CHECKING:
    from pathlib import Path

BuiltinType = Literal["web_search_preview", "code_interpreter", "file_search", "image_generation"]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    protocol: Protocol
    url: str = ""
    token: str = Field(default="", repr=False)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    command: str = ""
    args: tuple[str, ...] = ()
    envs: dict[str, str] = Field(default_factory=dict, repr=False)
    required: bool = False
    builtin_type: BuiltinType | None = None
    builtin_tool_name: str | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.protocol == "stdio" and not self.command:
            raise ValueError("a stdio server needs a command")
        if self.protocol != "stdio" and not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with http:// or https://")
        if (self.builtin_type is None) != (self.builtin_tool_name is None):
            raise ValueError("builtin_type and builtin_tool_name go together")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    servers: tuple[_Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in tool that a server backs."""

    spec: ServerSpec
    tool_name: str


@dataclass(frozen=True, slots=True)
class ConfiguredServers:
    """The servers of the file.

    Attributes:
        servers: by name in lower case.
        builtins: by type of the built-in tool.
    """

    servers: dict[str, ServerSpec]
    builtins: dict[str, Builtin]


NO_SERVERS = ConfiguredServers({}, {})


def read_config(path: Path) -> ConfiguredServers:
    """Read the file.

    Raises:
        ValueError: it cannot be read, or something in it is wrong; says what.
    """
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        entries = _File.model_validate(data).servers
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        # Without the values: some are secret.
        faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ValueError(f"{path}: {faults}") from None
    servers: dict[str, ServerSpec] = {}
    builtins: dict[str, Builtin] = {}
    for entry in entries:
        if entry.name.lower() in servers:
            raise ValueError(f"{path}: two servers have the name {entry.name}")
        spec = servers[entry.name.lower()] = _spec(entry)
        if entry.builtin_type is not None and entry.builtin_tool_name is not None:
            if entry.builtin_type in builtins:
                raise ValueError(f"{path}: two servers back {entry.builtin_type}")
            builtins[entry.builtin_type] = Builtin(spec, entry.builtin_tool_name)
    return ConfiguredServers(servers, builtins)


def _spec(entry: _Entry) -> ServerSpec:
    headers = dict(entry.headers)
    if entry.token:
        headers["Authorization"] = f"Bearer {entry.token}"
    return ServerSpec(
        entry.name,
        entry.protocol,
        url=entry.url,
        headers=tuple(headers.items()),
        command=entry.command,
        args=entry.args,
        env=tuple(entry.envs.items()),
        is_configured=True,
    )
