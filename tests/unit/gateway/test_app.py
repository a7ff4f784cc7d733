"""GatewayApp on a socket: every request is answered, and a client that leaves ends its work."""

import asyncio

import pytest

from smg.callers.directory import caller_directory
from smg.errors import InvalidRequest, Overloaded, WorkerUnavailable
from smg.settings import CallerSettings
from tests.unit.gateway.serving import Counts, client, echo, exchange, gateway, listening


async def broken(request, reply):
    raise RuntimeError("secret detail")


async def invalid(request, reply):
    raise InvalidRequest("n is 0; allowed is from 1 to 10", param="n")


async def unavailable(request, reply):
    raise WorkerUnavailable("none")


async def busy(request, reply):
    raise Overloaded("full", code="admission_queue_full", retry_after_s=2)


async def endless(request, reply):
    reply.start(200, [])
    reply.write(b"begun")


async def silent(request, reply):
    pass


HANDLERS = (echo, broken, invalid, unavailable, busy, endless, silent)
ALL = [("POST", f"/{handler.__name__}", handler) for handler in HANDLERS]


async def test_a_handler_answers():
    async with client(gateway(*ALL)) as http:
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
    async with client(gateway(*ALL)) as http:
        answer = await http.post(path)
    assert answer.status_code == status
    assert answer.json() == {"error": body}
    assert answer.headers.get("x-smg-error-code") == (body["code"] if status != 400 else None)
    assert answer.headers.get("retry-after") == {503: "1", 429: "2"}.get(status)
    assert answer.headers["x-request-id"].startswith("x-")


async def test_a_fault_of_ours_tells_the_id_and_no_detail(caplog):
    async with client(gateway(*ALL)) as http:
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
    async with client(gateway(*ALL)) as http:
        answer = await http.post("/echo", headers=headers)
    found = answer.headers["x-request-id"]
    assert found == wanted if wanted else found.startswith("x-")


async def test_an_unknown_path_and_a_wrong_method_are_json_errors():
    async with client(gateway(*ALL)) as http:
        missing, wrong = await http.post("/nowhere"), await http.get("/echo")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_url")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def chunks(count):
    for _ in range(count):
        yield b"12345"


@pytest.mark.parametrize("content", [b"1" * 101, chunks(21)])
async def test_a_body_over_the_bound_is_refused(content):
    async with client(gateway(*ALL)) as http:
        answer = await http.post("/echo", content=content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_body_too_large")


async def test_a_body_in_pieces_is_joined():
    async with client(gateway(*ALL)) as http:
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
    callers = caller_directory(CallerSettings(api_key="shared", tenant_api_key=("red:red-key",)))
    access = {"serve": "serving", "admin": "admin", "open": "open"}
    app = gateway(*[("POST", f"/{path}", echo, who) for path, who in access.items()], callers=callers)
    headers = {"authorization": authorization} if authorization else {}
    async with client(app) as http:
        answers = {path: await http.post(f"/{path}", headers=headers) for path in ("serve", "admin", "open")}
    assert answers["serve"].status_code == serving
    assert answers["admin"].status_code == admin
    assert answers["open"].status_code == 200
    if serving == 401:
        assert answers["serve"].content == b""


async def test_a_fault_after_the_answer_has_begun_ends_the_connection_without_the_bodys_end():
    async with listening(gateway(*ALL)) as port:
        answer = await exchange(port, b"POST /endless HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"5\r\nbegun\r\n")


async def test_a_handler_that_answers_nothing_is_a_fault_of_ours(caplog):
    async with client(gateway(*ALL)) as http:
        answer = await http.post("/silent")
    assert answer.status_code == 500
    assert "has not ended its answer" in caplog.text


async def test_a_client_that_leaves_cancels_the_handler():
    running, cancelled = asyncio.Event(), asyncio.Event()
    counts = Counts()

    async def slow(request, reply):
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with listening(gateway(("POST", "/slow", slow), counts=counts)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        await running.wait()
        writer.close()
        await cancelled.wait()
        await counts.changed.wait()
    assert counts.responses == [("slow", 499)]


async def never(request, reply):
    raise AssertionError(request)


async def test_a_client_that_leaves_in_the_middle_of_its_body_reaches_no_handler():
    counts = Counts()
    async with listening(gateway(("POST", "/never", never), counts=counts)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /never HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc")
        await writer.drain()
        writer.close()
        await counts.changed.wait()
    assert counts.responses == [("never", 499)]


async def test_a_request_whose_wait_was_cancelled_by_others_is_answered(caplog):
    async def waiting(request, reply):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.cancel)
        await future

    async with client(gateway(("POST", "/waiting", waiting))) as http:
        answer = await http.post("/waiting")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_available_workers")
    assert "cancelled" in caplog.text
