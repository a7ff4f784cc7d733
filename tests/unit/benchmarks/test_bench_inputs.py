"""prompts, profile and command line: equal work for every system, and nothing of the machine in what is kept."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import orjson
import pytest

from benchmarks.gateway.__main__ import command_text, note_load, parse_arguments
from benchmarks.gateway.machine import NO_CPU
from benchmarks.gateway.original import VARIABLE, OriginalMissing, find_original
from benchmarks.gateway.perf import parse_report
from benchmarks.gateway.profiling import short_frame, summarize
from benchmarks.gateway.prompts import HISTORY_TURNS, PromptKind, PromptWriter, prose_lines

if TYPE_CHECKING:
    from pathlib import Path


def test_only_prose_is_taken():
    assert prose_lines(
        {"a": "   This is a fine line.\n>>> print(1, 2, 3, 4)\nToo short\nñ is not of it at all"}
    ) == ["This is a fine line."]


@pytest.mark.parametrize("kind", ["tiny", "small", "long_new", "long_history"])
def test_a_seed_gives_the_same_bodies_again(byte_writer: PromptWriter, kind: PromptKind):
    first, again = (byte_writer.bodies(kind, mode="stream", tokens=3, count=2, seed="5") for _ in range(2))
    assert first == again


def test_other_seeds_and_other_numbers_give_texts_never_seen(byte_writer: PromptWriter):
    bodies = [
        body
        for seed in ("1", "2")
        for body in byte_writer.bodies("small", mode="unary", tokens=1, count=20, seed=seed)
    ]
    assert len(set(bodies)) == 40


def test_a_history_is_shared_and_its_last_turn_is_new(byte_writer: PromptWriter):
    bodies = byte_writer.bodies("long_history", mode="stream", tokens=1, count=2, seed="3")
    first, second = (orjson.loads(body)["messages"] for body in bodies)
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]
    assert [message["role"] for message in first] == [
        "system",
        *["user", "assistant"] * HISTORY_TURNS,
        "user",
    ]


def test_a_text_is_as_long_as_wanted(byte_writer: PromptWriter):
    assert 500 <= len(byte_writer.text(500, random.Random(1))) + 1 <= 600


def test_the_passage_spells_its_tokens(byte_writer: PromptWriter):
    ids, text = byte_writer.passage(40)
    assert (len(ids), byte_writer.decode(ids)) == (40, text)


def test_a_shorter_passage_is_the_beginning_of_a_longer_one(byte_writer: PromptWriter):
    assert byte_writer.passage(300)[0][:40] == byte_writer.passage(40)[0]


def test_stacks_are_counted_by_leaf_by_python_function_and_by_all_that_called_it():
    stacks = "main (a/b/c/d.py:3);run (x.py:1);send (libc.so) 3\nmain (a/b/c/d.py:9);run (x.py:2) 1\nclone (libc.so) 4\n"
    profile = summarize(stacks, NO_CPU)
    assert profile.samples == 8
    assert dict(profile.leaves) == {"clone (libc.so)": 0.5, "send (libc.so)": 0.375, "run (x.py)": 0.125}
    assert dict(profile.own) == {"run (x.py)": 0.5, "threads without Python": 0.5}
    assert dict(profile.whole) == {"main (b/c/d.py)": 0.5, "run (x.py)": 0.5}


def test_waiting_is_no_work():
    stacks = "run (x.py:1);epoll_wait (libc.so) 9\nCondition.wait (threading.py:9);0x12 (libc.so) 9\nrun (x.py:1) 1"
    assert summarize(stacks, NO_CPU).samples == 1


def test_a_recursive_function_counts_once_a_stack():
    assert summarize("f (x.py:1);f (x.py:1) 2", NO_CPU).whole == [("f (x.py)", 1.0)]


def test_a_perf_report_is_read_without_its_comments_and_crumbs():
    report = "# Overhead  Shared Object\n#\n    54.36%  [kernel.kallsyms]   \n    41.65%  smg_rs.abi3.so\n     0.30%  ld.so\n\n"
    assert parse_report(report) == [
        ("kernel", pytest.approx(0.5436)),
        ("smg_rs.abi3.so", pytest.approx(0.4165)),
    ]


@pytest.mark.parametrize(
    ("frame", "short"),
    [
        ("f (/a/b/c/d.py:12)", "f (b/c/d.py)"),
        ("epoll_wait (libc.so.6)", "epoll_wait (libc.so.6)"),
        ("<idle>", "<idle>"),
    ],
)
def test_frames_lose_their_long_paths(frame: str, short: str):
    assert short_frame(frame) == short


def test_the_kept_command_holds_no_path():
    asked = parse_arguments(["--quick", "--original", "/home/someone/smg", "--systems", "ours"])
    assert command_text(asked) == "python -m benchmarks.gateway --quick --systems ours"


def test_a_busy_machine_is_noted():
    notes: list[str] = []
    note_load(notes, 0.1, 2)
    assert notes == []
    note_load(notes, 1.4, 2)
    assert "1.40 on 2 cores" in notes[0]


def test_a_named_original_must_be_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(OriginalMissing, match="nowhere"):
        find_original(tmp_path / "nowhere", tmp_path)
    executable = tmp_path / "smg"
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(executable))
    assert find_original(None, tmp_path) == executable
