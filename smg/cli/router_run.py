"""Runs the router for a command: logs, ports, event loop, and words for what goes wrong."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smg.cli.extras import can_trace
from smg.cli.flags import complain
from smg.cli.screen import Readiness
from smg.errors import BadTlsFile
from smg.parsers.harmony import HARMONY
from smg.parsers.reasoning import REASONING_PARSERS
from smg.parsers.tools import TOOL_PARSERS
from smg.settings import environment
from smg.settings.redaction import secrets_in
from smg.telemetry.logs import configure_logging
from smg.tls.listening import listening_tls
from smg.tls.worker import WorkerTls
from smg.workers.discovery import kubernetes_url, uses_kubernetes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from smg.server import RouterAddresses
    from smg.settings import ModelSettings, RouterSettings, TlsSettings
    from smg.telemetry.logs import LogWriter

FAILURE = 1


def start_logging(settings: RouterSettings) -> LogWriter:
    """Set up logging as the settings say; leave the result to end it."""
    telemetry = settings.telemetry
    # gRPC writes to standard error past our log, a line for each client that fails to agree on TLS. It reads this when
    # it is loaded, which comes later.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # noqa: TID251 -- set for a library, not read
    return configure_logging(
        level=telemetry.log_level, as_json=telemetry.log_json, secrets=secrets_of(settings)
    )


def secrets_of(settings: RouterSettings) -> list[str]:
    """Every text that must not appear in a log line."""
    return sorted(set(secrets_in(settings)))


def check_start(command: str, settings: RouterSettings) -> None:
    """Leave with a clear message when a port or a file cannot be had, before anything slow is started."""
    models = settings.models
    problems = [
        *_port_problems(settings),
        *_path_problems(models),
        *_parser_problems(models),
        *_tls_problems(settings.tls),
        *_processes_problems(command, settings.listener.processes),
    ]
    discovery = settings.discovery
    if uses_kubernetes(discovery) and not kubernetes_url(discovery, environment()):
        problems.append(
            "--service-discovery: this does not run in a Kubernetes cluster (KUBERNETES_SERVICE_HOST is not set);"
            " name the API with --kubernetes-api-url"
        )
    if settings.telemetry.enable_trace and not can_trace():
        problems.append("--enable-trace: OpenTelemetry is not installed; pip install 'smg[otel]'")
    if problems:
        complain(command, problems)


def _port_problems(settings: RouterSettings) -> Iterator[str]:
    listener, telemetry = settings.listener, settings.telemetry
    ports = [("--port", listener.host, listener.port), ("--grpc-port", listener.host, listener.grpc_port)]
    if telemetry.prometheus_port is not None:
        host = telemetry.prometheus_host or listener.host
        ports.append(("--prometheus-port", host, telemetry.prometheus_port))
    if settings.fleet.health_check_port is not None:
        ports.append(("--health-check-port", listener.host, settings.fleet.health_check_port))
    taken: dict[int, str] = {}
    for flag, host, port in ports:
        other = taken.setdefault(port, flag) if port else flag
        fault = port_fault(host, port) if other == flag else f"is {other} already"
        if fault:
            yield f"{flag} {port}: {fault}"


def _path_problems(models: ModelSettings) -> Iterator[str]:
    if models.chat_template and not Path(models.chat_template).is_file():
        yield f"--chat-template '{models.chat_template}': there is no such file"
    for flag, value in (("--tokenizer-path", models.tokenizer_path), ("--model-path", models.model_path)):
        if value is None:
            continue
        path = Path(value)
        if not (path.is_file() or (path / "tokenizer.json").is_file()):
            yield f"{flag} '{value}': no tokenizer.json there (for the engine's own model: smg serve --model)"


def _parser_problems(models: ModelSettings) -> Iterator[str]:
    for flag, name, known in (
        ("--tool-call-parser", models.tool_call_parser, (*TOOL_PARSERS, HARMONY)),
        ("--reasoning-parser", models.reasoning_parser, (*REASONING_PARSERS, HARMONY)),
    ):
        if name is not None and name not in known:
            yield f"{flag} '{name}': there is no such format; known are {', '.join(sorted(known))}"


def _tls_problems(tls: TlsSettings) -> Iterator[str]:
    for read in (listening_tls, WorkerTls):
        try:
            read(tls)
        except BadTlsFile as error:
            yield error.message


def _processes_problems(command: str, processes: int) -> Iterator[str]:
    if processes == 1:
        return
    if command != "launch":
        yield f"--processes {processes}: smg {command} runs one router; start the engine by smg worker and this by smg launch"
    if not hasattr(socket, "SO_REUSEPORT"):
        yield f"--processes {processes}: this system cannot share a port between processes (SO_REUSEPORT)"


def port_fault(host: str, port: int) -> str:
    """Why nobody can listen there, in words; empty when one can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            # Without SO_REUSEPORT on both sides, listening is what fails when another process listens.
            probe.listen(1)
        except socket.gaierror:
            return f"'{host}' is not an address of this machine"
        except OSError as error:
            return _bind_fault(error, host, port)
    return ""


def run_until_done(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a coroutine on a fast event loop and return its exit status."""
    import uvloop

    return uvloop.run(main())


def local_url(host: str, port: int, scheme: str = "http") -> str:
    """Address under which a listener is reached from this machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"


def readiness_of(
    addresses: RouterAddresses, models: tuple[str, ...], *, needs_key: bool = False
) -> Readiness:
    """What to tell about a router that listens."""
    secure = "s" if addresses.is_tls else ""
    return Readiness(
        http_url=local_url(addresses.host, addresses.port, f"http{secure}"),
        grpc_url=local_url(addresses.host, addresses.grpc_port, f"grpc{secure}"),
        models=models,
        needs_key=needs_key,
    )


def say(text: str) -> None:
    """Print a line for people on standard error."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 -- a command line talks


def _bind_fault(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"already in use on {host}; stop what uses it, or choose another"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"'{host}' is not an address of this machine"
    if error.errno == errno.EACCES:
        return f"listening below 1024 needs a privilege (port {port}); choose another"
    return str(error)
