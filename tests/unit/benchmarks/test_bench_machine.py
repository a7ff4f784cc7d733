"""machine: what is read from /proc is what the process did."""

from __future__ import annotations

import os
import time

import pytest

from benchmarks.gateway.machine import Cpu, memory_mb, parse_memory_kb, parse_stat, process_cpu, process_tree

STAT = "41 (smg :: (x) y) S 1 41 41 0 -1 4194304 148 0 22 0 310 95 0 0 20 0 13 0 161720 1103179776 18137 18446744"


def test_a_process_name_with_brackets_does_not_shift_the_fields():
    assert parse_stat(STAT) == (310, 95)


def test_memory_fields_are_found_by_their_whole_name():
    assert parse_memory_kb("VmRSSX:\t 1 kB\nVmRSS:\t  72820 kB\n", "VmRSS") == 72820


def test_a_missing_memory_field_is_named():
    with pytest.raises(ValueError, match="VmHWM"):
        parse_memory_kb("Name:\tx\n", "VmHWM")


def test_cpu_of_a_process_agrees_with_its_own_clock():
    first = time.process_time()
    seen = process_cpu(os.getpid()).total_s
    assert first <= seen <= time.process_time()


def test_a_process_is_part_of_its_tree():
    assert process_tree(os.getpid())[0] == os.getpid()


def test_this_process_has_memory():
    assert memory_mb(os.getpid()) > 1


def test_kernel_share_is_unknown_without_a_tick():
    assert Cpu(0.004, 0.0, 0.0).kernel_share is None
    assert Cpu(0.04, 0.03, 0.01).kernel_share == pytest.approx(0.25)
