"""parts_of(): parts come back as they were put in, and what is malformed is told, whatever the bytes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bodies.multipart import parts_of
from smg.errors import DecisionsRefused

TYPE = "multipart/form-data; boundary=XyZ"


def body(*parts, boundary=b"XyZ"):
    out = b""
    for name, kind, data in parts:
        head = f'Content-Disposition: form-data; name="{name}"; filename="f"\r\nContent-Type: {kind}'
        out += b"--" + boundary + b"\r\n" + head.encode() + b"\r\n\r\n" + data + b"\r\n"
    return out + b"--" + boundary + b"--\r\n"


@given(st.lists(st.binary(max_size=80).filter(lambda data: b"--XyZ" not in data), max_size=4))
def test_parts_come_back(datas):
    parts = parts_of(body(*((f"p{n}", "image/png", data) for n, data in enumerate(datas))), TYPE)
    assert [(part.name, part.content_type, part.data) for part in parts] == [
        (f"p{n}", "image/png", data) for n, data in enumerate(datas)
    ]


@pytest.mark.parametrize(
    "declared", ['multipart/form-data; boundary="XyZ"', "multipart/form-data;charset=x; BOUNDARY=XyZ"]
)
def test_the_boundary_may_be_written_in_several_ways(declared):
    assert [part.name for part in parts_of(body(("request", "application/json", b"{}")), declared)] == [
        "request"
    ]


@pytest.mark.parametrize(
    ("data", "declared"),
    [
        (b"", TYPE),
        (b"--XyZ", TYPE),
        (b"preamble\r\n--XyZ--", TYPE),
        (body(("a", "t", b"1"))[:-8], TYPE),
        (b"--XyZ\r\n\r\nno name\r\n--XyZ--", TYPE),
        (b"--XyZ\r\nContent-Disposition: form-data; name=a\r\nno end of headers", TYPE),
        (body(("a", "t", b"1")), "multipart/form-data"),
        (body(*[("a", "t", b"")] * 1025), TYPE),
    ],
)
def test_what_is_malformed_is_refused(data, declared):
    with pytest.raises(DecisionsRefused) as caught:
        parts_of(data, declared)
    assert caught.value.reason == "encoding_malformed"


@given(st.binary(max_size=200))
def test_any_bytes_are_parts_or_a_refusal(data):
    with contextlib.suppress(DecisionsRefused):
        parts_of(b"--XyZ" + data, TYPE)
