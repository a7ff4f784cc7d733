"""A real MCP server of the official SDK. As a program it speaks over stdio."""

import asyncio

from mcp import types
from mcp.server import MCPServer


def make_server(calls=None, headers=None):
    """A server with a few tools. `calls` remembers what was called, `headers` is told of each request's."""
    server = MCPServer("tools-of-tests")
    calls = [] if calls is None else calls

    @server.tool(description="Add two integers")
    def add(a: int, b: int) -> str:
        calls.append(("add", a, b))
        return str(a + b)

    @server.tool(description="Look up", annotations=types.ToolAnnotations(read_only_hint=True))
    def look_up(key: str) -> str:
        calls.append(("look_up", key))
        return f"value of {key}"

    @server.tool(description="Always fails")
    def fail(reason: str = "broken") -> str:
        calls.append(("fail", reason))
        msg = f"upstream broke: {reason}"
        raise ValueError(msg)

    @server.tool(description="Never ends")
    async def hang() -> str:
        calls.append(("hang",))
        await asyncio.sleep(3600)
        return ""

    @server.tool(description="Never answers")
    def drop() -> str:
        return ""

    @server.tool(description="Says a lot")
    def shout(count: int) -> str:
        return "x" * count

    return server


if __name__ == "__main__":
    make_server().run(transport="stdio")
