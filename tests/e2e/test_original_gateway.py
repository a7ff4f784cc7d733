"""The original gateway and ours in front of one local engine: the same prompts, the same greedy answers.

The original comes from PyPI (`smg==1.13.0`) and cannot share our environment: SMG_BENCH_ORIGINAL names its executable, and
`make e2e-original` installs it. It reaches the engine by SGLang's protocol (`--also-serve sglang`), ours by the session.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import httpx
import openai
import pytest

from benchmarks.gateway.children import free_port

if TYPE_CHECKING:
    from pathlib import Path

ORIGINAL = os.environ.get("SMG_BENCH_ORIGINAL", "")  # noqa: TID251 -- names what only some machines have

pytestmark = [
    pytest.mark.long,
    pytest.mark.model,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not ORIGINAL, reason="the original gateway is not here: SMG_BENCH_ORIGINAL names none"
    ),
]

# The package has our package's name: what points Python at ours must not reach it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # noqa: TID251 -- for a child
READY_S = 120
MODEL = "small"
PROMPTS = [
    "What is the capital of France?",
    "Count from one to ten.",
    "Write one sentence about the sea.",
    "Name three colours, with commas between.",
    "Ünïcödé and 日本語 and 🎉: repeat this.",
    "Say nothing but: yes",
]


@contextlib.contextmanager
def process(log: Path, *command: str, env=None):
    with log.open("wb") as sink:
        child = subprocess.Popen(command, stdout=sink, stderr=sink, env=env)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(what, child: subprocess.Popen, log: Path):
    deadline = time.monotonic() + READY_S
    while not (found := what()):
        if child.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"not ready; its log:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
    return found


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readiness", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateways")
    python = (sys.executable, "-m")
    with contextlib.ExitStack() as stack:
        log = folder / "engine.log"
        engine = stack.enter_context(
            process(
                log, *python, "servicers", "--engine", "local", "--model-id", MODEL, "--dtype", "fp32",
                "--threads", "1", "--also-serve", "sglang",
            )
        )  # fmt: skip
        worker = wait_for(lambda: re.search(r"ready (grpc://\S+)", log.read_text()), engine, log)[1]
        found = {}
        for name, launcher, extra in (
            ("original", (ORIGINAL,), ("--prometheus-port", str(free_port()))),
            ("ours", (*python, "smg"), ("--grpc-port", "0")),
        ):
            port, log = free_port(), folder / f"{name}.log"
            gateway = stack.enter_context(
                process(
                    log, *launcher, "launch", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", worker,
                    "--log-level", "warn", *extra, env=ENVIRONMENT if name == "original" else None,
                )
            )  # fmt: skip
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda url=url: is_ready(url), gateway, log)
            found[name] = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120, max_retries=0)
        yield found
        for client in found.values():
            client.close()


def whole(client, prompt, **fields):
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": prompt}], temperature=0, max_tokens=24, **fields
    )
    choice = answer.choices[0]
    usage = answer.usage
    return choice.message.content, choice.finish_reason, usage.prompt_tokens, usage.completion_tokens


def streamed(client, prompt):
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": prompt}],
            temperature=0,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    usage = next(chunk.usage for chunk in chunks if chunk.usage)
    return text, [each for each in reasons if each], usage.prompt_tokens, usage.completion_tokens


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("ask", [whole, streamed])
def test_both_gateways_give_the_same_answer(clients, ask, prompt):
    assert ask(clients["original"], prompt) == ask(clients["ours"], prompt)


def test_both_gateways_give_the_same_answer_with_a_stop_text(clients):
    answers = [
        whole(clients[name], "Count from one to ten.", stop=["3", "three"]) for name in ("original", "ours")
    ]
    assert answers[0][:2] == answers[1][:2]
    assert answers[0][1] == "stop"
