"""The gateways that are compared, the engine each of them fronts, and how a pair is started.

Three pairs: the original on SGLang's protocol (the only one that it shares with us), ours on its own engine
contract, and ours on SGLang's protocol, which shows what of the difference is the protocol's.
"""

from __future__ import annotations

import http.client
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.gateway.answers import WrongAnswer, check_answer
from benchmarks.gateway.children import POLL_S, ChildFailed, free_port
from benchmarks.gateway.load import HOST
from benchmarks.gateway.prompts import MODEL_ID, chat_body

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.gateway.children import Child, Children

EngineKind = Literal["sglang_mock", "echo"]
SystemKey = Literal["original", "ours", "ours_sglang"]
READY_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class System:
    """A gateway in front of an engine."""

    key: SystemKey
    title: str
    engine: EngineKind
    launcher: tuple[str, ...]  # what `launch` and its flags are appended to


@dataclass(frozen=True, slots=True)
class Rig:
    """A running system. Systems with the same kind of engine share its process; one is loaded at a time."""

    system: System
    gateway: Child
    engine: Child
    port: int

    @property
    def watched(self) -> dict[str, int]:
        """Process ids for put_load."""
        return {"gateway": self.gateway.pid, "engine": self.engine.pid}


def known_systems(original: Path | None) -> list[System]:
    """All systems; the original only where its executable is known."""
    ours = (sys.executable, "-m", "smg")
    systems = [
        System("ours", "ours", "echo", ours),
        System("ours_sglang", "ours on SGLang's protocol", "sglang_mock", ours),
    ]
    if original is not None:
        systems.insert(0, System("original", "original", "sglang_mock", (str(original),)))
    return systems


def start_rigs(children: Children, systems: Sequence[System], tokenizer: Path, step_s: float) -> list[Rig]:
    """Start every system and wait until each has answered a request."""
    engines: dict[EngineKind, Child] = {}
    urls: dict[EngineKind, str] = {}
    for system in systems:
        kind = system.engine
        if kind not in engines:
            engines[kind] = children.start(
                f"engine-{kind}-{step_s:g}s", engine_command(kind, tokenizer, step_s)
            )
    for kind, engine in engines.items():
        urls[kind] = engine.wait_for_line(r"ready (grpc://\S+)").group(1)
    rigs: list[Rig] = []
    for system in systems:
        port = free_port()
        command = gateway_command(system, port, urls[system.engine], tokenizer)
        gateway = children.start(f"gateway-{system.key}-{step_s:g}s", command)
        rigs.append(Rig(system, gateway, engines[system.engine], port))
    for rig in rigs:
        wait_until_ready(rig)
    return rigs


def engine_command(kind: EngineKind, tokenizer: Path, step_s: float) -> list[str]:
    """Command line of an engine on a port of its choice."""
    paced = ["--port", "0", "--step-seconds", str(step_s), "--model-path", str(tokenizer)]
    if kind == "sglang_mock":
        return [sys.executable, "-m", "benchmarks.gateway.sglang_mock", *paced]
    return [sys.executable, "-m", "servicers", "--engine", "echo", "--echo-endless", "--model-id", MODEL_ID,
            "--host", HOST, *paced]  # fmt: skip


def gateway_command(system: System, port: int, worker_url: str, tokenizer: Path) -> list[str]:
    """Command line of a gateway: defaults, but for ports and a log level that is the same for all."""
    command = [*system.launcher, "launch", "--host", HOST, "--port", str(port), "--worker-urls", worker_url,
               "--log-level", "warn"]  # fmt: skip
    if system.engine == "sglang_mock":
        command += ["--model-path", str(tokenizer)]
    if system.key == "original":
        return [*command, "--prometheus-host", HOST, "--prometheus-port", str(free_port())]
    return [*command, "--grpc-port", "0"]


def wait_until_ready(rig: Rig) -> None:
    """Wait for /readiness, then for one right answer. Raises ChildFailed or WrongAnswer."""
    deadline = time.monotonic() + READY_LIMIT_S
    while _status(rig.port, "/readiness") != 200:
        rig.gateway.check_alive()
        rig.engine.check_alive()
        if time.monotonic() > deadline:
            raise ChildFailed(
                f"{rig.gateway.name} not ready in {READY_LIMIT_S:g} s; log:\n{rig.gateway.log_tail()}"
            )
        time.sleep(POLL_S)
    try:
        check_answer(_chat_once(rig.port), is_stream=False, tokens=1)
    except WrongAnswer as error:
        raise WrongAnswer(f"{rig.gateway.name}, first request: {error}") from error


def _status(port: int, path: str) -> int | None:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _chat_once(port: int) -> bytes:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        body = chat_body([{"role": "user", "content": "Hi"}], "unary", 1)
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return b"HTTP/1.1 %d\r\n\r\n" % answer.status + answer.read()
    finally:
        connection.close()
