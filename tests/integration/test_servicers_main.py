"""`python -m servicers` as a process: its ready line, its end on a signal, and what it says when it cannot start."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from smg_proto.engine.v1 import card_pb2, engine_pb2, engine_pb2_grpc, work_pb2
from tests.unit.servicers.fakes import read_to_end

ROOT = Path(__file__).resolve().parents[2]
# Passed on, not read.
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}"}  # noqa: TID251 -- for a child


async def start(
    *arguments: str, program: tuple[str, ...] = ("-m", "servicers")
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *program,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=ROOT,
    )


@asynccontextmanager
async def worker(*arguments: str):
    process = await start("--engine", "echo", "--model-id", "m", *arguments)
    try:
        yield process, (await process.stdout.readline()).decode().split()
    finally:
        if process.returncode is None:
            process.kill()
        # Reads the pipes to their end, which closes them.
        await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_it_says_ready_with_its_real_port_and_ends_well_when_told(tokenizer_dir, number):
    async with worker("--model-path", str(tokenizer_dir), "--port", "0") as (process, words):
        assert words[0] == "ready"
        async with grpc.aio.insecure_channel(words[1].removeprefix("grpc://")) as channel:
            stub = engine_pb2_grpc.EngineServiceStub(channel)
            assert (await stub.Describe(card_pb2.DescribeRequest())).models[0].id == "m"
        process.send_signal(number)
        assert await process.wait() == 0


async def test_a_second_signal_cuts_the_drain_short(tokenizer_dir):
    async with worker("--model-path", str(tokenizer_dir), "--step-seconds", "0.001") as (process, words):
        async with grpc.aio.insecure_channel(words[1].removeprefix("grpc://")) as channel:
            session = engine_pb2_grpc.EngineServiceStub(channel).Session()
            endless = work_pb2.Generate(
                sequence=1, prompt_ids=b"\1\0\0\0", stream=True, sampling={"ignore_eos": True}
            )
            await session.read()
            await session.write(engine_pb2.SessionRequest(generate=[endless]))
            await session.read()
            process.send_signal(signal.SIGTERM)
            assert b"draining" in await process.stderr.readline()
            process.send_signal(signal.SIGINT)
            _, code, _ = await read_to_end(session)
            assert code is grpc.StatusCode.UNAVAILABLE
        assert await process.wait() == 0


async def test_a_busy_port_ends_it_with_a_clear_line(tokenizer_dir):
    async with worker("--model-path", str(tokenizer_dir)) as (_, words):
        port = words[1].rpartition(":")[2]
        async with worker("--model-path", str(tokenizer_dir), "--port", port) as (second, said):
            errors = await second.stderr.read()
            assert await second.wait() == 1
    assert said == []
    assert f"smg worker: cannot listen on 127.0.0.1:{port}: Address already in use" in errors.decode()


async def test_a_missing_model_directory_is_named():
    process = await start("--engine", "echo", "--model-path", "/no/such/dir")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode().startswith("smg worker: --model-path '/no/such/dir' has no tokenizer.json")


@pytest.mark.skipif(importlib.util.find_spec("sglang") is not None, reason="SGLang is installed here")
async def test_sglang_that_is_not_installed_is_refused_with_what_works_instead():
    process = await start("--engine", "sglang", "--model-path", "/models/m")
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert "pip install 'smg[sglang]'" in errors.decode()
    assert "--smg-grpc-mode" in errors.decode()


async def test_the_local_engine_without_torch_says_how_to_install_it():
    program = (
        "-c",
        "import sys; sys.modules['torch'] = None\n"
        "from servicers.__main__ import main\n"
        "sys.exit(main(['--engine', 'local']))",
    )
    process = await start(program=program)
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert "pip install torch==2.13.0" in errors.decode()
