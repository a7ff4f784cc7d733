"""EngineProcess: an engine is started, restarted when it dies, and never left behind."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from smg.cli.engine_process import EngineProcess, EngineStartError, EngineTimings

FAKE_ENGINE = str(Path(__file__).with_name("fake_engine.py"))
URL = "grpc://127.0.0.1:45123"


def new_engine(*words: str, **timings) -> EngineProcess:
    return EngineProcess(
        lambda port: [sys.executable, FAKE_ENGINE, str(port), *words],
        EngineTimings(**{"startup_s": 30.0, "stop_s": 20.0, "restart_s": (0.0,), **timings}),
    )


@contextlib.asynccontextmanager
async def running(engine: EngineProcess):
    """The engine, started and watched."""
    await engine.start()
    watch = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await engine.stop()


async def logged(caplog, text: str) -> None:
    """Wait until a log line holds the text."""
    while text not in caplog.text:  # noqa: ASYNC110 -- a log line tells nobody that it came
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_start_returns_the_address_that_the_engine_tells():
    engine = new_engine()
    assert await engine.start() == URL
    assert is_alive(engine.pid)
    await engine.stop()
    assert not is_alive(engine.pid)


async def test_an_engine_that_ends_while_it_starts_is_reported_with_its_last_words():
    engine = new_engine("fail")
    with pytest.raises(EngineStartError, match="ended with status 3") as caught:
        await engine.start()
    assert (caught.value.lines[0], caught.value.lines[-1]) == ("loading the model", "no such model")


async def test_the_engines_log_lines_keep_their_severity(caplog):
    caplog.set_level(logging.INFO)
    engine = new_engine()
    await engine.start()
    await logged(caplog, "the model is old")
    await engine.stop()
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    assert levels["servicers.local: the model is old"] == "WARNING"
    assert levels["loading the model"] == "INFO"


async def test_an_engine_that_never_gets_ready_is_given_up_and_ended():
    engine = new_engine("silent", startup_s=0.5)
    with pytest.raises(EngineStartError, match=r"not ready after 0\.5 s"):
        await engine.start()
    assert not is_alive(engine.pid)


async def test_an_engine_that_dies_is_reported_and_started_again_on_its_port(caplog):
    caplog.set_level(logging.INFO)
    async with running(new_engine()) as engine:
        first = engine.pid
        os.kill(first, signal.SIGKILL)
        await logged(caplog, f"the engine serves again at {URL}")
        assert engine.pid != first
        assert is_alive(engine.pid)
        assert psutil.Process(engine.pid).cmdline()[-1] == "45123"
    assert "the engine was killed by SIGKILL; restarting it in 0 s" in caplog.text


async def test_restarts_are_tried_until_one_works(caplog, tmp_path):
    caplog.set_level(logging.INFO)
    async with running(new_engine(f"fail-after-first={tmp_path / 'left'}")) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        await logged(caplog, "the engine serves again")
    assert caplog.text.count("the engine did not come back: it ended with status 4") == 2


async def test_waits_between_restarts_grow(caplog, tmp_path):
    caplog.set_level(logging.INFO)
    engine = new_engine(f"fail-after-first={tmp_path / 'left'}", restart_s=(0.01, 0.02))
    async with running(engine):
        os.kill(engine.pid, signal.SIGKILL)
        await logged(caplog, "the engine serves again")
    assert [line.rsplit(" in ", 1)[1] for line in caplog.messages if "restarting" in line] == [
        "0.01 s",
        "0.02 s",
        "0.02 s",
    ]


async def test_an_engine_that_ignores_sigterm_is_killed():
    engine = new_engine("stubborn", stop_s=0.2)
    await engine.start()
    await engine.stop()
    assert not is_alive(engine.pid)


async def test_the_engine_is_in_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it():
    engine = new_engine()
    await engine.start()
    assert os.getsid(engine.pid) == engine.pid
    await engine.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's tie to the parent is Linux's")
def test_the_engine_dies_with_its_parent_even_when_that_is_killed():
    code = f"""
        import asyncio, sys
        from smg.cli.engine_process import EngineProcess, EngineTimings
        async def main():
            engine = EngineProcess(lambda port: [sys.executable, {FAKE_ENGINE!r}, str(port)], EngineTimings())
            await engine.start()
            print(engine.pid, flush=True)
            await engine.run()
        asyncio.run(main())
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    with parent:
        engine = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        engine.wait(timeout=30)
    assert not engine.is_running()
