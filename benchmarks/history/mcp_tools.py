"""An MCP server with one tool, as a process: `python -m benchmarks.history.mcp_tools PORT`."""

from __future__ import annotations

import sys

from mcp.server import MCPServer

HOST = "127.0.0.1"


def main() -> None:
    """Serve until ended."""
    server = MCPServer("sums", log_level="ERROR")

    @server.tool(description="Add two integers")
    def add(a: int, b: int) -> str:  # pyright: ignore[reportUnusedFunction]
        return str(a + b)

    print("ready", flush=True)
    server.run(
        transport="streamable-http", host=HOST, port=int(sys.argv[1]), stateless_http=True, json_response=True
    )


if __name__ == "__main__":
    main()
