"""A small Kubernetes API server: lists and watches pods, and can be told to misbehave."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qs, urlsplit


def pod(name, ip="", *, uid="", labels=None, phase="Running", ready=True, ending=False, annotations=None):
    """A pod as the API tells it."""
    metadata = {
        "name": name,
        "namespace": "prod",
        "uid": uid or f"uid-{name}",
        "labels": labels or {"app": "engine"},
    }
    if annotations:
        metadata["annotations"] = annotations
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"metadata": metadata, "status": {**status, "podIP": ip} if ip else status}


class KubernetesDouble:
    """`pods` by uid; `put` and `drop` change them and tell the watchers.

    `refuse` holds statuses to answer the next requests with. `requests` are the queries seen, with their token.
    """

    def __init__(self) -> None:
        self.pods: dict[str, dict] = {}
        self.version = 100
        self.token = ""
        self.page_size = 500
        self.refuse: list[int] = []
        self.requests: list[dict[str, str]] = []
        self._watchers: set[asyncio.Queue] = set()
        self._tasks: set[asyncio.Task] = set()
        self._changed = asyncio.Event()

    async def start(self, ssl=None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=ssl)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if ssl else 'http'}://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def put(self, each) -> None:
        kind = "MODIFIED" if each["metadata"]["uid"] in self.pods else "ADDED"
        self.pods[each["metadata"]["uid"]] = each
        self.tell(kind, each)

    def drop(self, uid) -> None:
        self.tell("DELETED", self.pods.pop(uid))

    def tell(self, kind, each) -> None:
        self.version += 1
        each["metadata"]["resourceVersion"] = str(self.version)
        self.send(json.dumps({"type": kind, "object": each}))

    def bookmark(self) -> None:
        self.tell("BOOKMARK", {"metadata": {}})

    def gone(self) -> None:
        self.version += 1000
        self.send(json.dumps({"type": "ERROR", "object": {"code": 410, "message": "too old"}}))

    def send(self, line) -> None:
        for queue in self._watchers:
            queue.put_nowait(line)

    def end_watches(self) -> None:
        self.send(None)

    def lists(self):
        return [query for query in self.requests if "watch" not in query]

    def watches(self):
        return [query for query in self.requests if "watch" in query]

    async def until(self, condition) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def _serve(self, reader, writer) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            while head := await _head(reader):
                await self._answer(head, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, head, writer) -> None:
        line, *headers = head.split("\r\n")
        target = urlsplit(line.split(" ")[1])
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        token = next(
            (each.split(" ")[-1] for each in headers if each.lower().startswith("authorization:")), ""
        )
        self.requests.append({**query, "path": target.path, "token": token})
        status = self.refuse.pop(0) if self.refuse else 401 if self.token and token != self.token else 200
        if status != 200:
            _write(writer, status, json.dumps({"code": status}))
        elif "watch" in query:
            await self._watch(query, writer)
        else:
            _write(writer, 200, json.dumps(self._page(query)))
        self._changed.set()

    def _page(self, query):
        everything = list(self.pods.values())
        begin = int(query.get("continue", 0))
        end = begin + self.page_size
        metadata = {"resourceVersion": str(self.version)}
        if end < len(everything):
            metadata["continue"] = str(end)
        return {"kind": "PodList", "metadata": metadata, "items": everything[begin:end]}

    async def _watch(self, query, writer) -> None:
        queue: asyncio.Queue = asyncio.Queue()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self._watchers.add(queue)
        self._changed.set()
        try:
            while (line := await queue.get()) is not None:
                data = line.encode() + b"\n"
                # Lines come in pieces of any size.
                for piece in (data[:7], data[7:]):
                    writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    await writer.drain()
            writer.write(b"0\r\n\r\n")
        finally:
            self._watchers.discard(queue)


async def _head(reader) -> str:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return ""


def _write(writer, status, body) -> None:
    writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
