"""RouteTable: every path finds its handler, everything else a JSON error that helps."""

import pytest

from gateway.routes import Route, RouteTable
from smg.errors import MethodNotAllowed, NotFound


async def handler(request, reply):
    """Answers nothing."""


TABLE = RouteTable(
    [
        Route("POST", "/v1/chat", handler, "chat", id_prefix="chatcmpl"),
        Route("GET", "/v1/models", handler, "models"),
        Route("GET", "/v1/models/{model*}", handler, "model"),
        Route("GET", "/workers/{id}", handler, "worker"),
        Route("DELETE", "/workers/{id}", handler, "worker_delete"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "name", "parameters"),
    [
        ("POST", "/v1/chat", "chat", {}),
        ("GET", "/v1/models", "models", {}),
        ("HEAD", "/v1/models", "models", {}),  # GET serves HEAD
        ("GET", "/v1/models/a%2Fb", "model", {"model": "a/b"}),  # an encoded slash stays in its segment
        ("GET", "/v1/models/a/b", "model", {"model": "a/b"}),  # as clients send it that do not encode
        ("GET", "/workers/7", "worker", {"id": "7"}),
        ("DELETE", "/workers/7", "worker_delete", {"id": "7"}),
    ],
)
def test_a_served_path_finds_its_route(method, path, name, parameters):
    route, found = TABLE.find(method, path)
    assert (route.name, found) == (name, parameters)


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/models/", "/workers/7/8", "/v1/chat/", "//v1/chat", "", "/V1/chat"]
)
def test_an_unknown_path_is_not_found(path):
    with pytest.raises(NotFound) as caught:
        TABLE.find("GET", path)
    assert caught.value.code == "unknown_url"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat", "POST"),
        ("POST", "/v1/models", "GET,HEAD"),
        ("OPTIONS", "/v1/chat", "POST"),
        ("PUT", "/workers/1", "GET,HEAD,DELETE"),
    ],
)
def test_another_method_names_the_allowed_ones(method, path, allowed):
    with pytest.raises(MethodNotAllowed) as caught:
        TABLE.find(method, path)
    assert caught.value.param == allowed


def test_ids_are_prefixed_by_path_whatever_the_method():
    assert TABLE.id_prefix("/v1/chat") == "chatcmpl"
    assert TABLE.id_prefix("/nowhere") == "req"
