"""`smg launch` and `smg worker` as an operator runs them: processes of their own, found by address."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import openai
import pytest

pytestmark = pytest.mark.slow

SAY = "[[say:hello there]]"


@contextlib.contextmanager
def running(log: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Start `smg` with the words; yields the process and the addresses of its ready line."""
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "smg", *words], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        line = process.stdout.readline()
        if not line.startswith("ready "):
            pytest.fail(f"no ready line but {line!r}; standard error:\n{log.read_text()}")
        yield process, line.split()[1:]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def worker(tmp_path, tokenizer_dir):
    words = ["--engine", "echo", "--model-path", str(tokenizer_dir), "--model-id", "echo-model", "--port"]

    @contextlib.contextmanager
    def start(port: int = 0):
        with running(tmp_path / "worker.log", "worker", *words, str(port)) as started:
            yield started

    return start


@contextlib.contextmanager
def gateway(folder: Path, *flags: str):
    with running(folder / "gateway.log", "launch", *flags) as (process, (http_url, _)):
        yield process, http_url


def launch_flags(worker_url: str) -> list[str]:
    return [
        *("--host", "127.0.0.1", "--port", "0", "--grpc-port", "0"),
        *("--worker-urls", worker_url, "--disable-circuit-breaker"),
    ]


def status(url: str) -> int:
    try:
        with urlopen(url, timeout=10) as answer:
            return answer.status
    except HTTPError as error:
        return error.code


def until(holds, deadline_s: float = 40.0) -> None:
    """Poll other processes' state until it holds; fail when it never does."""
    deadline = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def ask(http_url: str, key: str = "none") -> str:
    client = openai.OpenAI(base_url=f"{http_url}/v1", api_key=key, max_retries=0, timeout=30)
    messages = [{"role": "user", "content": SAY}]
    answer = client.chat.completions.create(model="echo-model", messages=messages)
    return answer.choices[0].message.content


def test_a_gateway_answers_with_a_worker_that_runs_elsewhere(tmp_path, worker):
    with worker() as (_, (worker_url,)), gateway(tmp_path, *launch_flags(worker_url)) as (_, http_url):
        until(lambda: status(f"{http_url}/readiness") == 200)
        assert ask(http_url) == "hello there"
        assert status(f"{http_url}/metrics") == 200


def test_a_gateway_starts_before_its_worker_and_finds_it(tmp_path, worker):
    with worker() as (first, (worker_url,)):
        first.kill()
        first.wait()
    port = int(worker_url.rsplit(":", 1)[1])
    with gateway(tmp_path, *launch_flags(worker_url)) as (_, http_url):
        assert status(f"{http_url}/liveness") == 200
        assert status(f"{http_url}/readiness") == 503
        with worker(port):
            until(lambda: status(f"{http_url}/readiness") == 200)
            assert ask(http_url) == "hello there"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_gateway_and_worker_with_status_0(tmp_path, worker, number):
    with (
        worker() as (engine, (worker_url,)),
        gateway(tmp_path, *launch_flags(worker_url)) as (router, http_url),
    ):
        until(lambda: status(f"{http_url}/readiness") == 200)
        router.send_signal(number)
        assert router.wait(timeout=40) == 0
        engine.send_signal(number)
        assert engine.wait(timeout=40) == 0


def test_metrics_have_a_port_of_their_own_when_one_is_given(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    flags = ["--host", "127.0.0.1", "--port", "0", "--grpc-port", "0", "--prometheus-port", str(port)]
    with gateway(tmp_path, *flags), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"smg_slow_reader_aborts_total" in answer.read()


def test_keys_stay_out_of_every_line_that_is_logged_at_debug(tmp_path, worker):
    key = "a-very-secret-key"
    with worker() as (_, (worker_url,)):
        flags = ["--api-key", key, "--tenant-api-key", f"red:tenant-{key}", "--log-level", "debug"]
        with gateway(tmp_path, *launch_flags(worker_url), *flags) as (router, http_url):
            until(lambda: status(f"{http_url}/readiness") == 200)
            with pytest.raises(openai.AuthenticationError):
                ask(http_url, key="another-key")
            assert ask(http_url, key) == "hello there"
            assert ask(http_url, f"tenant-{key}") == "hello there"
            router.terminate()
            router.wait(timeout=40)
        logged = (tmp_path / "gateway.log").read_text() + (tmp_path / "worker.log").read_text()
    assert "DEBUG" in logged
    assert key not in logged
