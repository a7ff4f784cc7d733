"""Starts an engine and a gateway in front of it, each as its own process."""

from __future__ import annotations

import contextlib
import http.client
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.gateway.children import POLL_S, Children, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

READY_LIMIT_S = 120.0


class Rig(NamedTuple):
    """A running pair.

    Attributes:
        port: of the gateway. gateway: its process id. engine: the engine's.
    """

    port: int
    gateway: int
    engine: int


@contextlib.contextmanager
def running(root: Path, engine: Sequence[str], gateway_flags: Sequence[str] = ()) -> Iterator[Rig]:
    """The pair, ended at the end.

    Args:
        root: the repository.
        engine: flags of the engine.
        gateway_flags: more flags of the gateway.
    """
    port = free_port()
    with Children(root, root / "build" / "bench") as children:
        worker = children.start("decisions-engine", (sys.executable, "-m", "servicers", *engine))
        url = worker.wait_for_line(r"ready (grpc://\S+)").group(1)
        command = ("launch", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", url)
        gateway = children.start(
            "decisions-gateway",
            (sys.executable, "-m", "smg", *command, "--decision-timeout-secs", "600", *gateway_flags),
        )
        _wait_ready(port)
        yield Rig(port, gateway.pid, worker.pid)


def _wait_ready(port: int) -> None:
    limit = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < limit:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/v1/systemone/models")
            if b'"question_types"' in connection.getresponse().read():
                return
        time.sleep(POLL_S)
    raise RuntimeError("the gateway did not get ready")
