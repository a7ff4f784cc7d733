"""Worker addresses and the pauses between attempts to reach them."""

from __future__ import annotations

import asyncio
import random

import pytest

from smg.errors import InvalidRequest
from smg.workers.address import parse_url
from smg.workers.backoff import Backoff
from smg.workers.options import WorkerOptions


@pytest.mark.parametrize(
    ("url", "scheme", "host", "target"),
    [
        ("grpc://127.0.0.1:20000", "grpc", "127.0.0.1", "127.0.0.1:20000"),
        ("http://engine-0.svc:80/", "http", "engine-0.svc", "engine-0.svc:80"),
        ("grpc://[::1]:5", "grpc", "::1", "[::1]:5"),
    ],
)
def test_good_addresses(url, scheme, host, target):
    address = parse_url(url)
    assert (address.scheme, address.host, address.target) == (scheme, host, target)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("not a url:1", "got the host 'not a url'"),
        ("ftp://127.0.0.1:20000", "scheme 'ftp'"),
        ("https://host:1", "scheme 'https'"),
        ("grpc://host", "no port"),
        ("grpc://:20000", "no host"),
        ("grpc://host:99999", "port outside"),
        ("grpc://host:x", "port outside"),
        ("grpc://host:1/path", "nothing else"),
        ("grpc://user@host:1", "nothing else"),
        ("grpc://host:1?a=b", "nothing else"),
        ("grpc://[::1:5", "not a url"),
        ("grpc://host:0", "port outside"),
        ("grpc://a\nb:1", "cannot be printed"),
        ("grpc://host:1\t", "cannot be printed"),
        ("grpc://a..b:1", r"the host 'a\.\.b'"),
        ("grpc://.:1", r"the host '\.'"),
        (f"grpc://{'a' * 64}:1", "the host"),
        (f"grpc://{'é' * 70}:1", "the host"),
    ],
)
def test_bad_addresses_are_refused_with_what_is_wrong(url, fault):
    with pytest.raises(InvalidRequest, match=fault) as caught:
        parse_url(url)
    assert caught.value.param == "url"
    assert repr(url) in caught.value.message


def test_a_long_address_is_not_told_back_whole():
    with pytest.raises(InvalidRequest) as caught:
        parse_url("x" * 100_000 + "://" + "a" * 100_000)
    assert len(caught.value.message) < 1000


def test_pauses_double_up_to_the_longest():
    options = WorkerOptions(backoff_min_s=1, backoff_max_s=10, backoff_jitter=0)
    backoff = Backoff(options)
    assert [backoff.next_s() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    backoff.reset()
    assert backoff.next_s() == 1


def test_jitter_stays_within_its_share():
    backoff = Backoff(WorkerOptions(backoff_min_s=1, backoff_max_s=1, backoff_jitter=0.2), random.Random(1))
    pauses = [backoff.next_s() for _ in range(2000)]
    assert 0.8 <= min(pauses) < 0.85
    assert 1.15 < max(pauses) <= 1.2


async def test_a_long_pause_can_be_cut_while_it_lasts():
    backoff = Backoff(WorkerOptions(backoff_min_s=0.001, backoff_max_s=1e6, backoff_jitter=0))
    for _ in range(30):
        backoff.next_s()
    pause = asyncio.create_task(backoff.pause())
    while not pause.done():
        backoff.hasten()
        await asyncio.sleep(0)
    # Nobody is in a pause: nothing happens.
    backoff.hasten()
