"""Runs one router as several processes that share its ports: starts them, keeps them, and drains them together.

The processes are forks of this one, made before an event loop, a thread or gRPC is there. The kernel spreads new connections
over them (SO_REUSEPORT); each has its own sessions to the workers. This process serves nothing: it holds the ports, so that
their numbers stay, and waits.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from smg.cli.router_run import FAILURE, readiness_of, say
from smg.cli.screen import PlainScreen
from smg.errors import SmgError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from smg.server import RouterAddresses
    from smg.settings import RouterSettings
    from smg.settings.fields import Section
    from smg.telemetry.siblings import Siblings

# Between the death of a process and its successor, so that one that dies at once does not do so at full speed.
_RESTART_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True)
class _Child:
    """One process: its id, and what it says when it is ready."""

    pid: int
    ready: int


class Processes:
    """The processes of one router. Must be made before threads are."""

    def __init__(
        self,
        settings: RouterSettings,
        run: Callable[[RouterSettings, Siblings, Callable[[RouterAddresses], None], int], int],
    ) -> None:
        """Prepare.

        Args:
            settings: of the whole router.
            run: runs one process with its part of the settings until it is drained, and returns its exit status; its last
                argument is a file that ends when this process does.
        """
        self._settings = settings
        self._run_one = run
        self._children: dict[int, _Child] = {}
        self._is_stopping = False
        # Open in this process alone: the others see it end with this one.
        self._life_read, self._life_write = os.pipe()

    def run(self) -> int:
        """Run them all until a signal ends them. Returns the exit status."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="smg-router-")))
            try:
                settings = self._hold_ports(stack)
            except OSError as error:
                say(f"smg launch: cannot listen: {error}")
                return FAILURE
            count = settings.listener.processes
            _import_router()
            for index in range(count):
                self._start(index, count, folder, settings)
            for number in _SIGNALS:
                if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, self._asked)
            addresses = [self._wait_ready(child) for child in self._children.values()]
            if not all(addresses):
                self._stop_all(signal.SIGTERM)
                self._wait_ends()
                return 0 if self._is_stopping else FAILURE
            _announce(addresses[0] or "", self._settings)
            return self._keep(count, folder, settings)

    def _hold_ports(self, stack: ExitStack) -> RouterSettings:
        """Bind without listening; a port 0 is a number from then on."""
        listener = self._settings.listener
        ports: dict[str, int] = {}
        for name in ("port", "grpc_port"):
            family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
            held = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind((listener.host, getattr(listener, name)))
            ports[name] = held.getsockname()[1]
        return self._settings.model_copy(update={"listener": listener.model_copy(update=ports)})

    def _start(self, index: int, count: int, folder: Path, settings: RouterSettings) -> None:
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            self._children[index] = _Child(pid, read)
            return
        status = FAILURE
        try:
            os.close(read)
            os.close(self._life_write)
            # A terminal's Ctrl-C is for the parent, which tells the others once.
            os.setpgid(0, 0)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            status = self._run_one(
                share_of(settings, index),
                _siblings(index, count, folder),
                lambda addresses: _tell_ready(write, addresses),
                self._life_read,
            )
        except SmgError as error:
            say(f"smg launch: {error}")
        except BaseException as error:  # noqa: BLE001 - nothing may return into the parent's code
            say(f"smg launch: process {index} failed: {type(error).__name__}: {error}")
        finally:
            os._exit(status)

    def _wait_ready(self, child: _Child) -> str | None:
        """The line that a process writes when it listens; None when it has ended instead."""
        with os.fdopen(child.ready, encoding="ascii") as pipe:
            return pipe.readline().strip() or None

    def _keep(self, count: int, folder: Path, settings: RouterSettings) -> int:
        """Wait; start again what dies unasked."""
        worst = 0
        while self._children:
            pid, status = os.wait()
            index = next((index for index, each in self._children.items() if each.pid == pid), None)
            if index is None:
                continue
            del self._children[index]
            code = os.waitstatus_to_exitcode(status)
            if self._is_stopping:
                worst = max(worst, abs(code))
                continue
            say(f"smg launch: process {index} of the router has ended with {code}; it is started again")
            time.sleep(_RESTART_S)
            if not self._is_stopping:
                self._start(index, count, folder, settings)
                os.close(self._children[index].ready)
                if self._is_stopping:
                    self._stop_all(signal.SIGTERM)
        return worst

    def _wait_ends(self) -> None:
        for child in self._children.values():
            with suppress(ChildProcessError):
                os.waitpid(child.pid, 0)

    def _asked(self, number: int, _: FrameType | None) -> None:
        """A signal: the first drains all, a second one ends all at once."""
        if self._is_stopping:
            self._stop_all(signal.SIGKILL)
            os._exit(128 + number)
        self._is_stopping = True
        self._stop_all(signal.SIGTERM)

    def _stop_all(self, number: int) -> None:
        for child in list(self._children.values()):
            with suppress(ProcessLookupError):
                os.kill(child.pid, number)


def _import_router() -> None:
    """Import once what every process needs, and let them share its memory: nothing of it starts a thread by itself."""
    import_module("smg.server")
    gc.collect()
    gc.freeze()


def share_of(settings: RouterSettings, index: int) -> RouterSettings:
    """The part of one process: bounds of the whole router are divided, and ports of its own are the first one's."""
    count = settings.listener.processes
    admission, fleet, telemetry = settings.admission, settings.fleet, settings.telemetry
    bounds = {
        name: math.ceil(getattr(admission, name) / count)
        for name in ("max_concurrent_requests", "queue_size", "rate_limit_tokens_per_second")
        if getattr(admission, name) > 0
    }
    parts: dict[str, Section] = {"admission": admission.model_copy(update=bounds)}
    if index:
        parts["fleet"] = fleet.model_copy(update={"health_check_port": None})
        parts["telemetry"] = telemetry.model_copy(update={"prometheus_port": None})
    return settings.model_copy(update=parts)


def _siblings(index: int, count: int, folder: Path) -> Siblings:
    from smg.telemetry.siblings import Siblings

    return Siblings(index, count, folder)


def _tell_ready(pipe: int, addresses: RouterAddresses) -> None:
    # Nobody waits for one that was started again.
    with suppress(OSError):
        os.write(pipe, f"{addresses.port} {addresses.grpc_port} {int(addresses.is_tls)}\n".encode())
    os.close(pipe)


def _announce(line: str, settings: RouterSettings) -> None:
    from smg.server import RouterAddresses

    port, grpc_port, is_tls = line.split()
    addresses = RouterAddresses(settings.listener.host, int(port), int(grpc_port), is_tls=is_tls == "1")
    PlainScreen().listening(readiness_of(addresses, ()))
