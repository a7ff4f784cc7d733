"""W3C trace context: what follows the standard is read, everything else is as good as absent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.telemetry.tracecontext import (
    TraceContext,
    try_traceparent,
    usable_traceparent,
    usable_tracestate,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),  # flags to come
        (f"01-{TRACE}-{SPAN}-01-more", True),  # a version to come
    ],
)
def test_what_follows_the_standard_is_read(text, is_sampled):
    assert try_traceparent(text) == TraceContext(int(TRACE, 16), int(SPAN, 16), is_sampled)
    assert usable_traceparent(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"01-{TRACE}-{SPAN}-01-{'m' * 300}",
    ],
)
def test_everything_else_counts_as_none(text):
    assert try_traceparent(text) is None
    assert not usable_traceparent(text)


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_what_is_written_is_read_again(trace_id, span_id, is_sampled):
    context = TraceContext(trace_id, span_id, is_sampled)
    assert try_traceparent(context.header) == context


def test_a_tracestate_is_passed_on_within_bounds():
    assert usable_tracestate("congo=t61rcWkgMzE,rojo=00f0") == "congo=t61rcWkgMzE,rojo=00f0"
    for text in ("a=" + "x" * 600, "a=\x01", "a=é"):
        assert not usable_tracestate(text)
