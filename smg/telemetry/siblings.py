"""Tells the metrics of several router processes as those of one, whichever of them is asked.

Each process gives its own out on a Unix socket; who is scraped asks the others and adds up. Counters and histograms add;
gauges add where they count what a process holds itself, else the largest is told, for all processes look at the same thing.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

_log = logging.getLogger(__name__)

# Longest wait for one process: a scrape tells what it can.
ANSWER_S = 2.0
_ADD_UP = frozenset((
    "smg_requests_inflight", "smg_admission_running", "smg_admission_waiting", "smg_admission_queue_size",
    "smg_worker_inflight_requests", "process_virtual_memory_bytes", "process_resident_memory_bytes", "process_open_fds",
    "process_max_fds",
))  # fmt: skip
_LEAST = frozenset(("process_start_time_seconds",))
_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Siblings:
    """The processes of one router.

    Attributes:
        index: of this one, from 0.
        count: of all.
        folder: where their sockets are.
    """

    index: int
    count: int
    folder: Path

    def path(self, index: int) -> str:
        """Where a process gives its metrics out."""
        return str(self.folder / f"{index}.sock")

    @property
    def others(self) -> list[int]:
        """The other processes."""
        return [index for index in range(self.count) if index != self.index]


class MetricsShare:
    """Gives the metrics of this process to the others, from a thread. Use as a context."""

    def __init__(self, registry: CollectorRegistry, siblings: Siblings) -> None:
        self._registry = registry
        self._path = siblings.path(siblings.index)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, name="smg-metrics-share", daemon=True)

    def __enter__(self) -> Self:
        """Listen."""
        with suppress(FileNotFoundError):
            # Left behind by a process of this number that has died.
            _unlink(self._path)
        self._socket.bind(self._path)
        self._socket.listen()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Wakes the thread, which `close` alone does not.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        with suppress(FileNotFoundError):
            _unlink(self._path)

    def _serve(self) -> None:
        while True:
            try:
                asked, _ = self._socket.accept()
            except OSError:
                return
            with asked, suppress(OSError):
                asked.settimeout(ANSWER_S)
                asked.sendall(generate_latest(self._registry))


class SharedRegistry(CollectorRegistry):
    """What all processes of a router tell, as one registry. `collect` blocks: call it in a thread."""

    def __init__(
        self, own: CollectorRegistry, siblings: Siblings, ask: Callable[[str], str] | None = None
    ) -> None:
        """Take the registry of this process. Args: ask: fetches what a process tells, by the path of its socket."""
        super().__init__()
        self._own = own
        self._siblings = siblings
        self._ask = ask or _ask

    def collect(self) -> Iterator[Metric]:
        """All families, added up."""
        told: list[Iterable[Metric]] = [self._own.collect()]
        for index in self._siblings.others:
            try:
                told.append(list(text_string_to_metric_families(self._ask(self._siblings.path(index)))))
            except (OSError, ValueError) as error:
                _log.warning("process %d of the router does not tell its metrics: %s", index, error)
        yield GaugeMetricFamily(
            "smg_router_processes", "Processes of this router that these metrics are of.", value=len(told)
        )
        yield from _added_up(told)


def _added_up(told: Iterable[Iterable[Metric]]) -> Iterator[Metric]:
    families: dict[str, Metric] = {}
    values: dict[str, dict[_Key, float]] = {}
    for families_of_one in told:
        for family in families_of_one:
            if family.name not in families:
                families[family.name] = Metric(family.name, family.documentation, family.type)
            known = values.setdefault(family.name, {})
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                mine = known.get(key)
                known[key] = sample.value if mine is None else _both(family, mine, sample.value)
    for name, family in families.items():
        family.samples = [
            Sample(sample, dict(labels), value) for (sample, labels), value in values[name].items()
        ]
        yield family


def _both(family: Metric, one: float, other: float) -> float:
    if family.name in _LEAST:
        return min(one, other)
    if family.type == "gauge" and family.name not in _ADD_UP:
        return max(one, other)
    return one + other


def _ask(path: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(ANSWER_S)
        asking.connect(path)
        parts: list[bytes] = []
        while data := asking.recv(65536):
            parts.append(data)
    return b"".join(parts).decode()


def _unlink(path: str) -> None:
    import pathlib

    pathlib.Path(path).unlink()
