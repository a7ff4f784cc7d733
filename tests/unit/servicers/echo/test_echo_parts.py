"""The small parts of the echo engine: prefix cache, distribution, meter, pacing."""

from __future__ import annotations

import math
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicers.echo.distribution import Distribution, context_key, context_key_of
from servicers.echo.pacing import Pacing
from servicers.echo.prefix_cache import BLOCK_TOKENS, PrefixCache, prompt_blocks
from servicers.echo.rate_meter import RateMeter
from servicers.token_bytes import ids_to_bytes


def blocks(*tokens: int, model: str = "m") -> list[int]:
    return prompt_blocks(ids_to_bytes(tokens), model)


@pytest.mark.parametrize(("length", "count"), [(1, 0), (16, 0), (17, 1), (32, 1), (33, 2), (100, 6)])
def test_the_last_token_of_a_prompt_is_in_no_block(length, count):
    assert len(blocks(*range(length))) == count


@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), st.integers(0, 80))
def test_a_common_start_is_cached_in_whole_blocks(tokens, cut):
    cache = PrefixCache(1 << 16)
    cache.add(blocks(*tokens))
    other = [*tokens[:cut], 9, *range(20)]
    expected = min(cut, len(tokens) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert cache.cached_tokens(blocks(*other)) == expected


def test_models_do_not_share_prefixes():
    cache = PrefixCache(1 << 16)
    cache.add(blocks(*range(40)))
    assert cache.cached_tokens(blocks(*range(40), model="other")) == 0


def test_the_longest_unused_blocks_go_first_and_the_ends_of_prefixes_before_their_starts():
    cache = PrefixCache(4 * BLOCK_TOKENS)
    old, new = blocks(*range(100, 133)), blocks(*range(200, 249))
    cache.add(old)
    cache.add(new)
    assert cache.used_tokens == cache.capacity_tokens == 64
    assert cache.cached_tokens(old) == BLOCK_TOKENS
    assert cache.cached_tokens(new) == 3 * BLOCK_TOKENS


def test_a_flush_keeps_what_is_in_use():
    cache = PrefixCache(1 << 16)
    used, unused = blocks(*range(33)), blocks(*range(50, 100))
    cache.add(used)
    cache.add(unused)
    assert cache.flush([used]) == 3 * BLOCK_TOKENS
    assert cache.cached_tokens(used) == 2 * BLOCK_TOKENS
    assert cache.cached_tokens(unused) == 0


@pytest.mark.parametrize("size", [2, 3, 97, 1000, 2048])
@pytest.mark.parametrize("center", [None, 1])
def test_probabilities_sum_to_one_and_the_likeliest_come_first(size, center):
    row = Distribution(size).row(context_key(b"\1\2\3\4"), center)
    logprobs = [row.logprob(token) for token in range(size)]
    assert sum(map(math.exp, logprobs)) == pytest.approx(1)
    top = row.top(20)
    assert len(top) == len(set(top)) == min(20, size)
    assert sorted(logprobs, reverse=True)[:20] == pytest.approx([row.logprob(token) for token in top])
    assert center is None or top[0] == center


def test_a_context_is_the_same_however_it_is_cut():
    whole = context_key(ids_to_bytes([1, 2, 70_000]))
    assert context_key_of([2, 70_000], context_key(ids_to_bytes([1]))) == whole
    assert context_key_of([2, 1], context_key(ids_to_bytes([70_000]))) != whole


def test_the_meter_tells_the_rate_of_the_last_window():
    meter = RateMeter(100.0)
    for step in range(10):
        meter.add(5, 100.0 + step / 10)
    assert meter.rate(100.95) == 0
    assert meter.rate(101.0) == pytest.approx(50)
    assert meter.rate(101.9) == pytest.approx(50)
    assert meter.rate(103.0) == 0


class FakeLoop:
    """A clock that the test sets, and one timer."""

    def __init__(self) -> None:
        self.now = 50.0
        self.when = inf
        self.callback = None

    def time(self) -> float:
        return self.now

    def call_soon(self, callback):
        return self.call_at(self.now, callback)

    def call_at(self, when, callback):
        assert self.callback is None, "one timer at a time"
        self.when, self.callback = when, callback
        return self

    def cancel(self) -> None:
        self.when, self.callback = inf, None

    def fire(self, late_s: float = 0.0) -> None:
        callback, self.now = self.callback, max(self.now, self.when + late_s)
        self.cancel()
        callback()


@given(st.lists(st.floats(-0.0005, 0.03), min_size=1, max_size=30))
def test_paced_steps_lie_on_a_grid_and_never_twice_on_one_point(delays):
    loop = FakeLoop()
    pacing = Pacing(0.01, lambda: pacing.wake(0.0), loop)
    pacing.wake(0.0)
    points = []
    for late_s in delays:
        index = (loop.when - 50.0) / 0.01
        assert index == pytest.approx(round(index))
        points.append(round(index))
        after_last = points[-2] + 1 if len(points) > 1 else 1
        # The next point of the grid; where rounding decides, either of two.
        nexts = {max(after_last, math.ceil((loop.now - 50.0) / 0.01 + slack)) for slack in (-1e-6, 1e-6)}
        assert points[-1] in nexts
        loop.fire(late_s)
    assert len(set(points)) == len(points)


def test_a_paced_step_is_not_before_what_is_due():
    loop = FakeLoop()
    pacing = Pacing(0.01, lambda: None, loop)
    pacing.wake(50.055)
    assert loop.when == pytest.approx(50.06)
    pacing.wake(50.021)
    assert loop.when == pytest.approx(50.03)


def test_an_earlier_wake_replaces_a_later_one_and_a_later_one_changes_nothing():
    loop = FakeLoop()
    pacing = Pacing(0.0, lambda: None, loop)
    pacing.wake(inf)
    assert loop.callback is None
    pacing.wake(60.0)
    assert loop.when == 60.0
    pacing.wake(55.0)
    assert loop.when == 55.0
    pacing.wake(70.0)
    assert loop.when == 55.0
    pacing.wake(0.0)
    assert loop.when == loop.now


def test_a_stopped_pacing_has_no_timer():
    loop = FakeLoop()
    pacing = Pacing(0.0, lambda: None, loop)
    pacing.wake(0.0)
    pacing.stop()
    pacing.stop()
    assert loop.callback is None
