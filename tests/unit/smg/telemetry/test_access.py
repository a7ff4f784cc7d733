"""The access log: names and numbers of a request, and nothing that a client wrote."""

import logging

import pytest

from smg.telemetry.access import log_grpc, log_http


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="smg.access")
    return caplog


def test_a_request_is_told_with_its_route_not_its_path(lines):
    log_http("POST", "chat", "/v1/chat/completions", 200, 0.1234, "r-1", "acme", {"completion_tokens": 3})
    (line,) = lines.records
    told = {name: getattr(line, name) for name in ("request_id", "method", "route", "status", "tenant")}
    assert told == {"request_id": "r-1", "method": "POST", "route": "chat", "status": 200, "tenant": "acme"}
    assert (line.duration_ms, line.completion_tokens) == (123.4, 3)
    assert not hasattr(line, "path")


def test_a_path_that_is_none_of_ours_is_told_up_to_a_bound(lines):
    log_http("GET", None, "/" + "x" * 1000, 404, 0.0, "r-1", "", {})
    (line,) = lines.records
    assert (line.route, len(line.path)) == ("unknown", 200)
    assert not hasattr(line, "tenant")


def test_a_call_is_told_with_its_code(lines):
    log_grpc("/smg.chat.v1.ChatService/CreateChatCompletion", "grpc_chat", 8, 0.01, "r-1", "", {})
    (line,) = lines.records
    assert (line.method.rsplit("/", 1)[-1], line.route, line.code) == ("CreateChatCompletion", "grpc_chat", 8)
