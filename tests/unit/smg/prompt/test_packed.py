"""Ids as bytes: four little-endian bytes an id, whatever the machine."""

from __future__ import annotations

import sys

import pytest

from smg.prompt.packed import pack_ids, unpack_ids


@pytest.mark.parametrize("ids", [[], [0], [1, 0x01020304, 0xFFFFFFFF]])
def test_ids_come_back(ids: list[int]) -> None:
    assert pack_ids(ids) == b"".join(i.to_bytes(4, "little") for i in ids)
    assert unpack_ids(pack_ids(ids)) == ids


def test_a_big_endian_machine_turns_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    native = pack_ids([1])
    monkeypatch.setattr(sys, "byteorder", "big")
    assert pack_ids([1]) == native[::-1]
    assert unpack_ids(native[::-1]) == [1]


@pytest.mark.parametrize("wrong", [-1, 1 << 32])
def test_what_does_not_fit_is_an_overflow(wrong: int) -> None:
    with pytest.raises(OverflowError):
        pack_ids([wrong])
