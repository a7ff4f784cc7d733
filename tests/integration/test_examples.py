"""Every file in examples/ is run, as its users run it, against a gateway with an echo engine."""

import asyncio
import contextlib
import io
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conftest import EchoWorkers
from tests.integration.running_router import running_router

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")}
OURS = Path(__file__).read_text()
STAND_IN = Path(__file__).with_name("grpcurl.py")
CALLS = '[[calls:get_weather:{"city": "Paris"}]][[next]][[say:It is sunny.]]'
CALL = '[[tool:get_weather:{"city": "Paris"}]][[next]][[say:It is sunny.]]'
WEATHER = "18°C and sunny in Paris"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(decision_tokenizer_dir):
    workers = EchoWorkers(decision_tokenizer_dir)
    async with running_router(await workers()) as running:
        running.base_url = f"{running.http.base_url}/v1"
        yield running
    await workers.stop_all()


def run(name, *words):
    """What an example prints. It runs in a thread of this process: its libraries are loaded once."""
    output, before = io.StringIO(), sys.argv
    sys.argv = [name, *words]
    try:
        with contextlib.redirect_stdout(output):
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    except SystemExit as end:
        code = end.code
    else:
        code = 0
    finally:
        sys.argv = before
    assert not code, f"{name} ended with {code}"
    return output.getvalue().splitlines()


async def test_openai_chat(gateway):
    printed = await asyncio.to_thread(run, "openai_chat.py", gateway.base_url, "[[say:Bonjour]]")
    assert (printed[0], printed[2]) == ("Bonjour", "Bonjour")
    assert printed[1].endswith(" tokens)")


async def test_openai_tools(gateway):
    printed = await asyncio.to_thread(run, "openai_tools.py", gateway.base_url, CALLS)
    assert printed == [f'get_weather({{"city":"Paris"}}) = {WEATHER}', "It is sunny."]


async def test_openai_responses(gateway):
    words = (gateway.base_url, "[[say:Bern]]", "[[say:Rome]]")
    printed = await asyncio.to_thread(run, "openai_responses.py", *words)
    assert printed[:2] == ["Bern", "Rome"]
    assert printed[2].endswith(" is kept, completed)")


async def test_openai_decisions(gateway):
    printed = await asyncio.to_thread(run, "openai_decisions.py", gateway.base_url)
    assert [line.partition(": ")[0] for line in printed] == ["refund", "team", "anger"]
    assert 0 <= float(printed[0].partition(": ")[2]) <= 1
    assert printed[1].partition(": ")[2] in ("billing", "technical", "sales")


async def test_agents(gateway):
    printed = await asyncio.to_thread(run, "agents_sdk.py", gateway.base_url, CALL)
    assert printed == ["get_weather('Paris')", "It is sunny."]


async def test_typed_grpc(gateway):
    printed = await asyncio.to_thread(run, "grpc_client.py", gateway.target, "[[say:Bonjour]]")
    assert (printed[0], printed[2]) == ("Bonjour", "Bonjour")


async def test_behind_envoy(gateway):
    printed = await asyncio.to_thread(run, "behind_envoy.py", gateway.target, "[[say:Bonjour]]")
    assert printed == ["Bonjour"]


async def test_grpcurl(gateway, tmp_path, monkeypatch):
    """With grpcurl itself where it is installed, else with a stand-in that knows as little of our messages."""
    if not shutil.which("grpcurl"):
        script = tmp_path / "grpcurl"
        script.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{STAND_IN}' \"$@\"\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    process = await asyncio.create_subprocess_exec(
        EXAMPLES / "grpcurl.sh", gateway.target, "[[say:Bonjour]]",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    services, models, whole, stream, decision = re.split(r"(?m)^[a-z ]+:\n", output.decode())[1:]
    assert "smg.chat.v1.ChatService" in services.splitlines()
    assert '"id": "m"' in models
    for part in (whole, stream):
        assert "".join(re.findall(r'"(?:text|content)": "([^"]*)"', part)) == "Bonjour"
    assert '"id": "refund"' in decision


async def test_every_example_is_run_here():
    assert {name for name in NAMES if f'"{name}"' not in OURS} == set()
