"""The document is valid OpenAPI, and tells what the route table, the error tree and the sinks do."""

import json
import re
from unittest.mock import Mock

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from gateway.openapi.document import document_bytes
from gateway.openapi.examples import EXAMPLES
from gateway.routes import ROUTE_NAMES, build_routes
from smg import errors
from tests.unit.gateway.openapi.judge import closed, plain_document

METHODS = ("get", "post", "put", "patch", "delete")


def operations():
    return {
        (method.upper(), path): item[method]
        for path, item in plain_document()["paths"].items()
        for method in METHODS
        if method in item
    }


def routes():
    return {
        (route.method, route.path.replace("*}", "}")): route
        for route in build_routes(*(Mock() for _ in range(8)))
    }


def every_error(root=errors.SmgError):
    yield root
    for child in root.__subclasses__():
        yield from every_error(child)


def test_it_is_valid_openapi_3_1():
    parsed = json.loads(document_bytes())
    assert parsed["openapi"].startswith("3.1.")
    assert [str(error) for error in OpenAPIV31SpecValidator(parsed).iter_errors()] == []


def test_every_route_is_documented_and_nothing_else():
    assert operations().keys() == routes().keys()
    assert {route.name for route in routes().values()} == set(ROUTE_NAMES)


def test_a_key_is_asked_for_where_the_route_asks_for_one():
    for key, route in routes().items():
        expected = [] if route.access == "open" else [{"bearer": []}]
        assert operations()[key]["security"] == expected, key


def test_operations_have_ids_of_their_own_and_known_tags():
    document = plain_document()
    ids = [operation["operationId"] for operation in operations().values()]
    assert len(set(ids)) == len(ids)
    tags = {tag["name"] for tag in document["tags"]}
    assert {tag for operation in operations().values() for tag in operation["tags"]} == tags


def test_every_reference_leads_somewhere_and_every_component_is_used():
    document = plain_document()
    used = set(re.findall(r'"#/components/(\w+/\w+)"', json.dumps(document)))
    known = {
        f"{kind}/{name}"
        for kind, components in document["components"].items()
        for name in components
        if kind != "securitySchemes"
    }
    # 405 answers what is no operation: the description names it.
    assert known - used == {"responses/MethodNotAllowed"}
    assert used <= known
    assert "`MethodNotAllowed`" in document["info"]["description"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_every_status_that_an_engine_or_the_gateway_may_answer_is_documented(path):
    responses = plain_document()["paths"][path]["post"]["responses"]
    engine = {errors.EngineError("no", engine_code=code).status for code in range(1, 17)}
    others = (errors.MethodNotAllowed, errors.DecisionsRefused)
    if path != "/v1/responses":
        # Only servers of tools can cause it.
        others = (*others, errors.DependencyFailed)
    own = {error.http_status for error in every_error() if not issubclass(error, others)}
    assert {str(status) for status in engine | own} <= responses.keys()


DECISIONS = (errors.DecisionsRefused, errors.QuestionFailed, errors.UnusableScores)


@pytest.mark.parametrize(
    "error",
    sorted(
        (each for each in every_error() if not issubclass(each, DECISIONS)), key=lambda error: error.__name__
    ),
)
def test_an_error_is_written_as_documented(error):
    from gateway.errors import error_answer

    arguments = {"engine_code": 14} if error is errors.EngineError else {"retry_after_s": 2}
    status, headers, body = error_answer(error("what was wrong", **arguments))
    documented = plain_document()["components"]["responses"]
    names = {name.decode().lower() for name, _ in headers} - {"content-type"}
    if dict(headers).get(b"content-type", b"").startswith(b"text/plain"):
        operation = plain_document()["paths"]["/workers"]["post"]["responses"]
        name = operation[str(status)]["$ref"].rpartition("/")[2]
        assert documented[name].get("content", {"text/plain": {}}).keys() == {"text/plain"}
        assert names <= {header.lower() for header in documented[name]["headers"]}
        return
    if not body:
        assert (status, "content" in documented["Unauthorized"]) == (401, False)
        return
    shape = (
        "RequestError"
        if issubclass(error, errors.InvalidRequest) and error.default_code in errors.VALIDATION_CODES
        else "GatewayError"
    )
    assert [fault.message for fault in closed(shape).iter_errors(json.loads(body))] == []
    assert ("x-smg-error-code" in names) == (shape == "GatewayError")


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_matches_its_schema(name):
    assert [fault.message for fault in closed(name).iter_errors(EXAMPLES[name])] == []


def test_every_operation_has_an_example_of_what_it_takes_and_answers():
    for key, operation in operations().items():
        if operation["tags"] == ["administration"]:
            continue
        content = operation["responses"]["200"]["content"]
        if key[1].startswith("/v1") or key[1] == "/readiness":
            assert all(media["examples"] for media in content.values()), key
        # Stopping a response takes nothing.
        if key[0] == "POST" and not key[1].endswith("/cancel"):
            assert operation["requestBody"]["content"]["application/json"]["examples"]


def test_it_is_made_once():
    assert document_bytes() is document_bytes()
