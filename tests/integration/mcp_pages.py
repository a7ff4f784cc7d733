"""A program that speaks MCP over stdio by hand: each page of its tools names the same next page, for ever."""

import json
import sys

PAGE = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}], "nextCursor": "again"}


def answer_to(request):
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        return {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "pages", "version": "1"},
        }
    return PAGE if request["method"] == "tools/list" else {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(
            json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer_to(request)}),
            flush=True,
        )
