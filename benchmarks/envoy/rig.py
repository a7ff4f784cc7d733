"""Envoy, gateways and engines as processes, each on an address and a port that stay the same over its lives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gateway.children import POLL_S, ChildFailed, Children, free_port
from benchmarks.gateway.prompts import MODEL_ID

# The tests run our configurations on a real Envoy as well.
from tests.integration.running_envoy import ENVOY, configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.gateway.children import Child

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
READY_S = 60.0
# All processes are ours: they import what this one does.
DROPPED_VARIABLES = ("SMG_",)


class Process:
    """A process with several lives on one command line."""

    def __init__(self, children: Children, name: str, command: Sequence[str], ready: str) -> None:
        self._children = children
        self._name = name
        self._command = command
        self._ready = ready
        self._lives = 0
        self.child: Child

    @property
    def pid(self) -> int:
        """Of its present life."""
        return self.child.pid

    def start(self) -> None:
        """Begin a life, and wait until it says that it is ready. Raises ChildFailed. Blocks."""
        self._lives += 1
        self.child = self._children.start(f"{self._name}-{self._lives}", self._command)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it serves. Raises ChildFailed. Blocks."""
        self.child.wait_for_line(self._ready, READY_S)

    def kill(self) -> None:
        """SIGKILL: the kernel closes its sockets, nobody says goodbye."""
        os.kill(self.pid, signal.SIGKILL)
        self.child.reap()


class Engine(Process):
    """An echo engine."""

    def __init__(self, children: Children, name: str, host: str, tokenizer: Path, step_s: float) -> None:
        self.target = f"{host}:{free_port()}"
        port = self.target.rpartition(":")[2]
        command = [sys.executable, "-m", "servicers", "--host", host, "--port", port, "--engine", "echo", "--echo-endless",
                   "--model-path", str(tokenizer), "--model-id", MODEL_ID, "--step-seconds", str(step_s),
                   "--max-running", "2048", "--log-level", "warning"]  # fmt: skip
        super().__init__(children, name, command, r"ready grpc://\S+:(\d+)")


class Gateway(Process):
    """A gateway; ready when it serves, its engines perhaps a moment later."""

    def __init__(
        self, children: Children, name: str, host: str, engines: Sequence[str], port: int, grpc_port: int,
        *flags: str,
    ) -> None:  # fmt: skip
        self.host, self.port, self.grpc_port = host, port, grpc_port
        self._engines = len(engines)
        command = [sys.executable, "-m", "smg", "launch", "--host", host, "--port", str(port),
                   "--grpc-port", str(grpc_port), "--log-level", "warn",
                   "--worker-urls", *(f"grpc://{engine}" for engine in engines), *flags]  # fmt: skip
        super().__init__(children, name, command, r"^ready http://")

    @property
    def target(self) -> str:
        """Its gRPC address."""
        return f"{self.host}:{self.grpc_port}"

    def wait_ready(self) -> None:
        """Wait until it serves and has all its engines."""
        super().wait_ready()
        wait_until(lambda: metric(self.host, self.port, "smg_worker_ready") >= self._engines)


class Envoy(Process):
    """An Envoy with one of our configurations, or with another."""

    def __init__(self, children: Children, name: str, found: dict[str, Any], host: str) -> None:
        self.host = host
        self.ports: dict[str, int] = {}
        for listener in found["static_resources"]["listeners"]:
            port = self.ports[listener["name"]] = free_port()
            listener["address"] = socket(host, port)
        self.admin_port = free_port()
        found["admin"] = {"address": socket(host, self.admin_port)}
        config = BUILD / f"{name}.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps(found))
        command = [str(ENVOY), "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1",
                   "--log-level", "warn", "--drain-time-s", "1"]  # fmt: skip
        super().__init__(children, name, command, "")

    def wait_ready(self) -> None:
        """Wait until it is live, which is when it has heard of its endpoints."""
        wait_until(lambda: self.asked("/ready").strip() == "LIVE")

    def asked(self, path: str) -> str:
        """What its administration answers; empty while it does not. Blocks."""
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.admin_port}{path}", timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            self.child.check_alive()
            return ""


def socket(host: str, port: int) -> dict[str, Any]:
    """An address as Envoy has it."""
    return {"socket_address": {"address": host, "port_value": port}}


def ours(name: str, clusters: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, Any]:
    """One of deploy/envoy/, before these addresses."""
    return configuration(name, clusters)


def plain_proxy(host: str, port: int) -> dict[str, Any]:
    """The least that Envoy can be: HTTP/1.1 in, HTTP/1.1 out."""
    types = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "proxy",
        "stream_idle_timeout": "600s",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "gateway", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}},
        ],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    endpoint = {"endpoint": {"address": socket(host, port)}}
    cluster = {
        "name": "gateway",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "gateway", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listener = {"name": "http", "filter_chains": [{"filters": filters}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def metric(host: str, port: int, name: str) -> float:
    """The sum of a metric of a gateway over its labels; 0 while it does not answer. Blocks."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return 0.0
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def wait_until(condition: Any) -> None:
    """Look now and then. Raises ChildFailed when it takes too long. Blocks."""
    deadline = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline:
            raise ChildFailed("not ready in time")
        time.sleep(POLL_S)


async def in_thread(*actions: Any) -> None:
    """Do what blocks, all at once."""
    await asyncio.gather(*(asyncio.to_thread(action) for action in actions))
