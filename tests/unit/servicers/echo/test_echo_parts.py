"""The small parts of the echo engine: prefix cache, distribution, meter, pacing."""

from __future__ import annotations

import asyncio
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


async def test_paced_steps_lie_on_a_grid_and_none_is_missed_or_doubled():
    loop = asyncio.get_running_loop()
    times: list[float] = []
    done = asyncio.Event()

    def step() -> None:
        times.append(loop.time())
        pacing.wake(loop.time())
        if len(times) == 20:
            done.set()

    pacing = Pacing(0.003, step)
    origin = loop.time()
    pacing.wake(0.0)
    await done.wait()
    pacing.stop()
    indices = [round((each - origin) / 0.003) for each in times]
    assert len(set(indices)) == len(indices)
    assert loop.time() - origin >= 19 * 0.003


async def test_an_earlier_wake_replaces_a_later_one_and_a_later_one_changes_nothing():
    steps: list[str] = []
    done = asyncio.Event()
    pacing = Pacing(0.0, lambda: (steps.append("step"), done.set()))
    loop = asyncio.get_running_loop()
    pacing.wake(loop.time() + 3600)
    pacing.wake(loop.time())
    pacing.wake(loop.time() + 3600)
    pacing.wake(inf)
    await done.wait()
    await asyncio.sleep(0)
    assert steps == ["step"]


async def test_a_stopped_pacing_does_not_step():
    steps: list[str] = []
    pacing = Pacing(0.0, lambda: steps.append("step"))
    pacing.wake(0.0)
    pacing.stop()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert steps == []
