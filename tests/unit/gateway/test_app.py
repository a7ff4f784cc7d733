"""GatewayApp over ASGI in memory: every request is answered, and a client that leaves ends its work."""

import asyncio

import httpx
import pytest

from gateway.app import GatewayApp, Limits
from gateway.routes import Route, RouteTable
from gateway.sse import KeepAlive
from smg.errors import InvalidRequest, Overloaded, WorkerUnavailable
from smg.types.callers import CallerDirectory


class Counts:
    """An observer that remembers."""

    def __init__(self):
        self.responses = []
        self.slow = 0

    def http_response(self, route, status):
        self.responses.append((route, status))

    def slow_reader_aborted(self):
        self.slow += 1


async def echo(request, reply):
    reply.start(
        200,
        [
            (b"content-length", b"%d" % len(request.body)),
            (b"x-request-id", request.context.request_id.encode()),
        ],
    )
    reply.end(request.body)


async def broken(request, reply):
    raise RuntimeError("secret detail")


async def invalid(request, reply):
    raise InvalidRequest("n is 0; allowed is from 1 to 10", param="n")


async def unavailable(request, reply):
    raise WorkerUnavailable("none")


async def busy(request, reply):
    raise Overloaded("full", code="admission_queue_full", retry_after_s=2)


def gateway(handlers, *, callers=None, counts=None, max_body_bytes=100):
    routes = [Route("POST", f"/{name}", handler, name, access, "x") for name, handler, access in handlers]
    return GatewayApp(
        RouteTable(routes),
        callers or CallerDirectory(),
        KeepAlive(0),
        Limits(max_body_bytes, 1000, 5.0, (b"x-request-id", b"x-trace-id")),
        counts or Counts(),
    )


def client(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")


ALL = [(f.__name__, f, "serving") for f in (echo, broken, invalid, unavailable, busy)]


async def test_a_handler_answers():
    async with client(gateway(ALL)) as http:
        answer = await http.post("/echo", content=b"hello")
    assert (answer.status_code, answer.content) == (200, b"hello")


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        (
            "/invalid",
            400,
            {"message": "n is 0; allowed is from 1 to 10", "type": "invalid_request_error", "code": 400},
        ),
        (
            "/unavailable",
            503,
            {"type": "Service Unavailable", "code": "no_available_workers", "message": "none", "param": None},
        ),
        (
            "/busy",
            429,
            {"type": "Too Many Requests", "code": "admission_queue_full", "message": "full", "param": None},
        ),
    ],
)
async def test_what_a_handler_raises_becomes_the_answer(path, status, body):
    async with client(gateway(ALL)) as http:
        answer = await http.post(path)
    assert answer.status_code == status
    assert answer.json() == {"error": body}
    assert answer.headers.get("x-smg-error-code") == (body["code"] if status != 400 else None)
    assert answer.headers.get("retry-after") == ("2" if status == 429 else None)
    assert answer.headers["x-request-id"].startswith("x-")


async def test_a_fault_of_ours_tells_the_id_and_no_detail(caplog):
    async with client(gateway(ALL)) as http:
        answer = await http.post("/broken", headers={"x-request-id": "mine"})
    assert answer.status_code == 500
    assert "mine" in answer.json()["error"]["message"]
    assert "secret" not in answer.text
    assert "secret detail" in caplog.text


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"x-request-id": "a-1"}, "a-1"),
        ({"x-trace-id": "t-1"}, "t-1"),
        ({"x-request-id": "x" * 257, "x-trace-id": "t-2"}, "t-2"),  # too long: the next header counts
        ({"x-request-id": "with space"}, None),
        ({"x-request-id": ""}, None),
    ],
)
async def test_the_clients_request_id_is_used_if_it_is_usable(headers, wanted):
    async with client(gateway(ALL)) as http:
        answer = await http.post("/echo", headers=headers)
    found = answer.headers["x-request-id"]
    assert found == wanted if wanted else found.startswith("x-")


async def test_an_unknown_path_and_a_wrong_method_are_json_errors():
    async with client(gateway(ALL)) as http:
        missing, wrong = await http.post("/nowhere"), await http.get("/echo")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_url")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def chunks(count):
    for _ in range(count):
        yield b"12345"


@pytest.mark.parametrize("content", [b"1" * 101, chunks(21)])
async def test_a_body_over_the_bound_is_refused(content):
    async with client(gateway(ALL)) as http:
        answer = await http.post("/echo", content=content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_body_too_large")


async def test_a_body_in_pieces_is_joined():
    async with client(gateway(ALL)) as http:
        answer = await http.post("/echo", content=chunks(20))
    assert answer.content == b"12345" * 20


@pytest.mark.parametrize(
    ("authorization", "serving", "admin"),
    [
        (None, 401, 401),
        ("Bearer wrong", 401, 401),
        ("Bearer shared", 200, 200),
        ("bearer shared", 200, 200),
        ("Bearer red-key", 200, 401),  # a tenant's key does not administer
        ("Basic shared", 401, 401),
    ],
)
async def test_keys_open_what_they_should(authorization, serving, admin):
    callers = CallerDirectory("shared", [("red", "red-key")])
    app = gateway(
        [("serve", echo, "serving"), ("admin", echo, "admin"), ("open", echo, "open")], callers=callers
    )
    headers = {"authorization": authorization} if authorization else {}
    async with client(app) as http:
        answers = {path: await http.post(f"/{path}", headers=headers) for path in ("serve", "admin", "open")}
    assert answers["serve"].status_code == serving
    assert answers["admin"].status_code == admin
    assert answers["open"].status_code == 200
    if serving == 401:
        assert answers["serve"].content == b""


async def test_a_client_that_leaves_cancels_the_handler():
    running, cancelled = asyncio.Event(), asyncio.Event()
    counts = Counts()

    async def slow(request, reply):
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    incoming = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def send(message):
        raise AssertionError(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/slow",
        "raw_path": b"/slow",
        "query_string": b"",
        "headers": [],
    }
    app = gateway([("slow", slow, "open")], counts=counts)
    task = asyncio.create_task(app(scope, incoming.get, send))
    await running.wait()
    incoming.put_nowait({"type": "http.disconnect"})
    await task
    assert cancelled.is_set()
    assert counts.responses == [("slow", 499)]


async def test_a_client_that_leaves_in_the_middle_of_its_body_reaches_no_handler():
    counts = Counts()
    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    async def send(message):
        raise AssertionError(message)

    async def never(request, reply):
        raise AssertionError(request)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/never",
        "raw_path": b"/never",
        "query_string": b"",
        "headers": [],
    }
    await gateway([("never", never, "open")], counts=counts)(scope, receive, send)
    assert counts.responses == [("never", 499)]


async def test_a_request_whose_wait_was_cancelled_by_others_is_answered(caplog):
    async def waiting(request, reply):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.cancel)
        await future

    async with client(gateway([("waiting", waiting, "open")])) as http:
        answer = await http.post("/waiting")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_available_workers")
    assert "cancelled" in caplog.text
