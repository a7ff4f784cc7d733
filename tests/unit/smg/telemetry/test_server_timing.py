"""Server-Timing: whole microseconds, told as milliseconds, whatever their size."""

import re

from hypothesis import given
from hypothesis import strategies as st

from smg.telemetry.server_timing import timing_of_answer, timing_of_stream

PHASE = re.compile(r"(\w+);dur=(\d+\.\d{3})")
NAMES = ["queue", "parse", "tokenize", "first_token", "decode"]
seconds = st.floats(0, 4000, allow_nan=False)


def parsed(header):
    found = PHASE.findall(header.decode())
    assert ", ".join(f"{name};dur={number}" for name, number in found) == header.decode()
    return {name: float(number) for name, number in found}


@given(st.lists(seconds, min_size=5, max_size=5))
def test_every_phase_is_told_to_the_microsecond(durations):
    times = [1.0]
    for duration in durations:
        times.append(times[-1] + duration)
    told = parsed(timing_of_answer(*times))
    assert list(told) == [*NAMES, "total"]
    for name, duration in zip(NAMES, durations, strict=True):
        assert abs(told[name] - duration * 1000) <= 0.0021
    assert abs(told["total"] - sum(durations) * 1000) <= 0.0021
    assert parsed(timing_of_answer(*times[:5], 0.0)) == {name: told[name] for name in NAMES[:4]}


def test_what_is_not_over_is_not_told():
    assert timing_of_stream(1.0, 1.001, 0.0, 0.0) == b"queue;dur=1.000"
    assert (
        timing_of_stream(1.0, 1.001, 1.003, 1.25) == b"queue;dur=1.000, parse;dur=2.000, tokenize;dur=247.000"
    )
