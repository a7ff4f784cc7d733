"""`smg conformance`: what it prints and returns for engines that keep the contract, break it, or are none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys

import pytest

from servicers.base import EngineOptions
from servicers.echo.engine import EchoEngine
from servicers.serve import start_server
from smg.cli.conformance import run
from smg.conformance.checking import Check, near
from smg.conformance.run import Outcome, all_checks, run_checks


class WithoutEos(EchoEngine):
    """Describes a model whose sequences nothing ends."""

    def describe(self):
        description = super().describe()
        del description.models[0].eos_token_ids[:]
        return description


@contextlib.asynccontextmanager
async def serving(engine_class, tokenizer_dir):
    engine = engine_class(EngineOptions((str(tokenizer_dir),), ("tiny",), step_seconds=0.001))
    server = await start_server(engine)
    try:
        yield server.url
    finally:
        await server.stop(0)


async def conformance(*words: str) -> int:
    # The command runs its own event loop, as on a command line.
    return await asyncio.to_thread(run, words)


async def test_an_engine_that_keeps_its_promises_is_told_so(tokenizer_dir, tmp_path, capsys):
    report = tmp_path / "report.json"
    async with serving(EchoEngine, tokenizer_dir) as url:
        assert await conformance(url, "--only", "service: ", "--json", str(report)) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{url}: echo ")
    assert "  ok     describe tells what a router needs" in said
    results = json.loads(report.read_text())
    assert len(results) == len([each for each in all_checks() if each.group == "service"])
    assert {each["outcome"] for each in results} == {"kept"}
    assert f"{len(results)} kept, 0 broken, 0 not offered" in said


async def test_a_broken_promise_is_told_with_what_was_asserted(tokenizer_dir, capsys):
    async with serving(WithoutEos, tokenizer_dir) as url:
        assert await conformance(url, "--only", "describe tells") == 1
    said = capsys.readouterr().out
    assert "  BROKEN describe tells what a router needs" in said
    assert "assert card.eos_token_ids" in said
    assert "0 kept, 1 broken" in said


async def test_what_is_no_engine_cannot_be_checked(capsys):
    assert await conformance("grpc://127.0.0.1:1") == 2
    assert "UNAVAILABLE" in capsys.readouterr().err


async def test_the_checks_can_be_listed_without_an_engine(capsys):
    assert await conformance("grpc://nowhere:1", "--list", "--only", "scoring") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith("scoring: ") or "scoring" in line for line in lines)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nowhere"])
def test_an_address_of_another_kind_is_refused(url, capsys):
    with pytest.raises(SystemExit) as caught:
        run([url])
    assert caught.value.code == 2
    assert "allowed: grpc://HOST:PORT" in capsys.readouterr().err


def test_without_assertions_nothing_is_checked():
    program = "import sys; from smg.cli.conformance import run; sys.exit(run(['grpc://127.0.0.1:1']))"
    ended = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "without -O" in ended.stderr


async def test_however_a_check_ends_it_is_a_result():
    async def forever(worker):
        await asyncio.Event().wait()

    async def breaks(worker):
        raise OSError("the line is dead")

    async def grouped(worker):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(breaks(worker))

    checks = [Check("g", run.__name__, run) for run in (forever, breaks, grouped)]
    results = [result async for result in run_checks(None, checks, 0.01)]
    assert [result.outcome for result in results] == [Outcome.BROKEN] * 3
    assert [result.why for result in results] == [
        "it did not end within 0.01 s",
        "OSError: the line is dead",
        "OSError: the line is dead",
    ]


def test_numbers_are_near_in_length_and_value():
    assert near(1.0, 0.1) == 1.05
    assert near([1.05, 2.05], 0.1) == [1.0, 2.0]
    assert near([1.0], 0.1) != [1.0, 1.0]
    assert near(1.0, 0.1) != 1.2
    assert repr(near(1.0, 0.1)) == "1.0 ± 0.1"
