"""A small HTTP server that answers like the gateway, for the tests of the terminal's side."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "tiny"


class FakeGateway(ThreadingHTTPServer):
    """Answers a chat with the words of the last message, doubled; "refuse" and "break" are obeyed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models = [MODEL]
        self.key = ""
        self.unready_answers = 0
        self.bodies: list[dict] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def fake_gateway() -> Iterator[FakeGateway]:
    """The server, running until left."""
    with FakeGateway() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeGateway

    def do_GET(self) -> None:
        if self.path == "/readiness":
            self.server.unready_answers -= 1
            self._json(503 if self.server.unready_answers >= 0 else 200, {})
        elif self._is_allowed():
            self._json(200, {"data": [{"id": name} for name in self.server.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        if not self._is_allowed():
            return
        text = body["messages"][-1]["content"]
        if text == "refuse":
            self._json(400, {"error": {"message": "temperature must be at most 2"}})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self._event({"choices": [{"delta": {"role": "assistant"}}]})
        for word in (text, " ", text):
            self._event({"choices": [{"delta": {"content": word}}]})
        if text == "break":
            self._event({"error": {"message": "the engine is gone"}})
        self._event({"choices": [], "usage": {}})
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *words: object) -> None:
        """Nothing: the tests' output is not a log."""

    def _is_allowed(self) -> bool:
        if self.server.key and self.headers.get("authorization") != f"Bearer {self.server.key}":
            self.send_response(401)
            self.send_header("content-length", "0")
            self.end_headers()
            return False
        return True

    def _event(self, chunk: dict) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def _json(self, status: int, answer: dict) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
