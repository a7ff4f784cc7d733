"""Cross-origin requests: pages of configured origins are let in, browsers are told so, and nobody else notices."""

import pytest

from gateway.app import GatewayApp
from gateway.cors import Cors
from gateway.routes import Route, RouteTable
from gateway.sse import KeepAlive
from smg.callers.directory import caller_directory
from smg.settings import CallerSettings, RouterSettings, SettingsError, load
from tests.unit.gateway.serving import Counts, client, echo, gateway

OK, EVIL = "http://ok.example", "http://evil.example"
EXPOSED = "x-request-id,traceparent,tracestate"


def app(*origins, **callers):
    plain = gateway()
    table = RouteTable([Route("POST", "/echo", echo, "echo", "serving", "x")])
    directory = caller_directory(CallerSettings(**callers))
    return GatewayApp(
        table, directory, KeepAlive(0), plain.limits, Counts(), cors=Cors(origins) if origins else None
    )


def told(answer):
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control")}


async def test_a_page_of_a_known_origin_may_read_the_answer_and_others_not():
    async with client(app(OK, "https://other.example")) as http:
        for origin, allowed in ((OK, OK), ("https://other.example",) * 2, (EVIL, None), ("null", None)):
            answer = await http.post("/echo", content=b"x", headers={"origin": origin})
            assert (answer.status_code, answer.content) == (200, b"x")
            assert answer.headers.get("access-control-allow-origin") == allowed
            assert answer.headers["access-control-expose-headers"] == EXPOSED
            assert answer.headers["vary"] == "origin"


async def test_errors_are_told_to_pages_too():
    async with client(app(OK, api_key="secret")) as http:
        for path, status in (("/echo", 401), ("/nowhere", 404)):
            answer = await http.post(path, headers={"origin": OK})
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, OK)


async def test_a_browser_may_ask_first_and_needs_no_key_for_it():
    async with client(app(OK, api_key="secret")) as http:
        asks = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,X-Own,bad name",
        }
        answer = await http.options("/echo", headers={"origin": OK, **asks})
        assert (answer.status_code, answer.content, answer.headers["allow"]) == (200, b"", "POST")
        allowed = "content-type,authorization,anthropic-version,anthropic-beta,traceparent,tracestate,x-own"
        assert told(answer) == {
            "access-control-allow-origin": OK,
            "access-control-allow-methods": "GET,POST,PATCH,DELETE,OPTIONS",
            "access-control-allow-headers": allowed,
            "access-control-max-age": "3600",
        }
        other = await http.options("/echo", headers={"origin": EVIL, **asks})
        assert (other.status_code, "access-control-allow-origin" in other.headers) == (200, False)
        assert (await http.options("/nowhere", headers={"origin": OK})).status_code == 404
        assert (await http.options("/echo")).status_code == 405


async def test_the_connection_goes_on_after_a_preflight():
    async with client(app(OK)) as http:
        for _ in range(3):
            assert (await http.options("/echo", headers={"origin": OK})).status_code == 200
            assert (await http.post("/echo", content=b"y", headers={"origin": OK})).content == b"y"


async def test_a_star_lets_every_page_in():
    async with client(app("*")) as http:
        answer = await http.post("/echo", headers={"origin": EVIL})
        assert (answer.headers["access-control-allow-origin"], "vary" in answer.headers) == ("*", False)


async def test_without_origins_nothing_is_said():
    async with client(app()) as http:
        assert told(await http.post("/echo", headers={"origin": OK})) == {}
        assert (await http.options("/echo", headers={"origin": OK})).status_code == 405


def test_what_is_asked_for_has_a_bound():
    wanted = ",".join(f"x-{number}" for number in range(1000)).encode() + b",x-" + b"y" * 100
    [allowed] = [
        value for name, value in Cors([OK]).preflight(b"", wanted) if name.endswith(b"allow-headers")
    ]
    assert allowed.count(b"x-") == 32


@pytest.mark.parametrize(
    "origin", ["ok.example", "http://ok.example/", "HTTP://ok.example", "http://", "http://a:x"]
)
def test_an_origin_that_no_browser_names_is_refused_at_the_start(origin):
    with pytest.raises(SettingsError, match="is not an origin"):
        load(RouterSettings, {"cors_allowed_origins": [origin]}, {})
