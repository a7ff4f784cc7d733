"""The head of a request from metadata, and metadata from the head of an answer."""

from gateway.edge.connection import answer_metadata, arriving_request
from gateway.edge.reply import EdgeReply


def test_a_request_is_what_envoy_says_that_the_client_sent():
    metadata = [
        ("x-envoy-original-method", "put"),
        ("x-envoy-original-path", "/v1/a%20b?x=1"),
        ("x-envoy-original-path", "/admin"),
        ("authorization", "Bearer k"),
        ("authorization", "Bearer other"),
        ("trace-bin", b"\x00"),
        ("content-length", "7"),
        ("te", "trailers"),
        ("x-name", "Zoë"),
    ]
    request = arriving_request(metadata, "application/json; charset=utf-8", 3)
    assert (request.method, request.url) == ("PUT", b"/v1/a%20b?x=1")
    assert request.headers == {
        b"authorization": b"Bearer k",
        b"x-name": "Zoë".encode("latin-1"),
        b"content-type": b"application/json; charset=utf-8",
        b"content-length": b"3",
    }


def test_without_a_body_there_are_no_headers_of_one():
    assert arriving_request((), "", None).headers == {}


def test_the_answers_head_is_metadata_without_what_frames_a_body():
    reply = EdgeReply(1, lambda: None, takes_body=True)
    reply.start(
        429,
        [
            (b"content-type", b"application/json"),
            (b"content-length", b"2"),
            (b"retry-after", b"1"),
            (b"x-name", "Zoë".encode()),
        ],
    )
    metadata, content_type = answer_metadata(reply)
    assert content_type == "application/json"
    assert metadata == (("x-http-status", "429"), ("retry-after", "1"), ("x-name", "Zo??"))
