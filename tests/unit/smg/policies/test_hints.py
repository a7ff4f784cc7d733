"""Hints from headers: what is malformed or over a limit counts as absent, and nothing raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.policies.hints import (
    NO_WORKER,
    asks_for_reason,
    first_routing_key,
    lineage_key,
    parse_routing_key,
    parse_routing_tokens,
    parse_target_worker,
)


def packed(*ids: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in ids)


@given(ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=372))
def test_ids_come_back_packed(ids):
    text = ",".join(map(str, ids))
    assert parse_routing_tokens(text) == packed(*ids)
    assert parse_routing_tokens(text.encode()) == packed(*ids)


@given(value=st.one_of(st.binary(max_size=5000), st.text(max_size=200)))
def test_no_value_raises(value):
    parse_routing_tokens(value)
    parse_routing_key(value)
    parse_target_worker(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b",",
        b"1,",
        b",1",
        b"1,,2",
        b"1, 2",
        b" 1",
        b"+1",
        b"-1",
        b"1.0",
        b"0x10",
        b"1_000",
        b"1,2,x",
        b"4294967296",
        b"99999999999999999999999999",
        "\u0661,\u0662",
        "\u00b2",
        b"\xb2",
        b"1\n",
        b"1;2",
    ],
    ids=repr,
)
def test_malformed_ids_count_as_none(value):
    assert parse_routing_tokens(value) == b""


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (b",".join([b"7"] * 512), 512),
        (b",".join([b"7"] * 513), 0),
        (b"0" * 4095 + b"7", 1),
        (b"0" * 4096 + b"7", 0),
        (b"4294967295,0", 2),
    ],
    ids=["512 ids", "513 ids", "4096 bytes", "4097 bytes", "the ends of the range"],
)
def test_limits_of_ids(value, count):
    assert len(parse_routing_tokens(value)) == 4 * count


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (None, ""),
        (b"", ""),
        (b"k", "k"),
        (b"a" * 128, "a" * 128),
        (b"a" * 129, ""),
        ("é".encode() * 64, "é" * 64),
        ("é" * 64, "é" * 64),
        ("é" * 65, ""),
        (b"\xff", ""),
        (b"\xc3", ""),
        ("\ud800", ""),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_routing_keys_are_utf_8_of_at_most_128_bytes(value, key):
    assert parse_routing_key(value) == key


@pytest.mark.parametrize(
    ("value", "index"),
    [
        (None, None),
        (b"0", 0),
        ("17", 17),
        (b"007", 7),
        (b"x", NO_WORKER),
        (b"", NO_WORKER),
        (b"-1", NO_WORKER),
        (b"1.5", NO_WORKER),
        (b" 1", NO_WORKER),
        (b"\xb2", NO_WORKER),
        (b"9" * 5000, NO_WORKER),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_target_is_an_index_or_names_no_worker(value, index):
    assert parse_target_worker(value) == index


@pytest.mark.parametrize(
    ("rid", "key"),
    [
        ("conv", "conv"),
        ("conv_t1", "conv"),
        ("conv_t2_r1", "conv"),
        ("conv_r12_t3", "conv"),
        ("conv_t", "conv_t"),
        ("conv_t1_x", "conv_t1_x"),
        ("", ""),
        ("_t1", ""),
        ("k" * 200, ""),
        ("k" * 126 + "_t1", "k" * 126),
    ],
)
def test_turns_and_retries_of_a_conversation_have_one_key(rid, key):
    assert lineage_key(rid) == key


def test_the_first_header_with_a_key_that_counts_wins():
    assert first_routing_key([None, b"", b"k" * 129, b"\xff", b"one", b"two"]) == "one"
    assert first_routing_key([]) == ""


@pytest.mark.parametrize(
    ("value", "asks"), [(None, False), (b"1", True), ("True", True), (b"0", False), ("", False)]
)
def test_only_a_clear_yes_asks_for_the_reason(value, asks):
    assert asks_for_reason(value) is asks
