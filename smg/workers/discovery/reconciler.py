"""Makes the registry hold what the sources want: the one place where discovery adds and removes workers.

Every source tells a whole set; together they are what is wanted. Workers that the settings or the API have named are
nobody's to remove. A worker that is no longer wanted finishes its work first. One that an operator has removed stays away
until its source has stopped wanting it once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from smg.errors import Overloaded
from smg.workers.backoff import Backoff
from smg.workers.discovery.base import Complaints, SourceFailed, by_url
from smg.workers.options import WorkerOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.workers.discovery.base import Found, Source
    from smg.workers.registered import RegisteredWorker
    from smg.workers.registry import WorkerRegistry

# Pauses before a source that failed is run again.
_PAUSES = WorkerOptions(backoff_min_s=0.5, backoff_max_s=30.0, backoff_jitter=0.2)

_log = logging.getLogger(__name__)


class Discovery:
    """The sources of one router, and what they want."""

    def __init__(
        self, registry: WorkerRegistry, sources: Sequence[Source], pauses: WorkerOptions = _PAUSES
    ) -> None:
        """Set up; nothing is looked for before `run`. Where two sources name one address, the earlier one counts."""
        self._registry = registry
        self._sources = sources
        self._pauses = pauses
        # One entry per source, so that their order stays.
        self._wanted: dict[int, dict[str, Found]] = {number: {} for number in range(len(sources))}
        self._hurry = [asyncio.Event() for _ in sources]
        self._mine: dict[str, RegisteredWorker] = {}
        # Removed here, and perhaps still at its last work.
        self._leaving: set[str] = set()
        # Removed by an operator while wanted: url and identity.
        self._dismissed: set[tuple[str, str]] = set()
        self._complaints = Complaints(lambda why: _log.warning("discovery: %s", why))

    async def run(self) -> None:
        """Run every source until cancelled."""
        forget = self._registry.on_change(self._look_for_losses)
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(len(self._sources)):
                    group.create_task(self._keep(number))
        finally:
            forget()

    async def _keep(self, number: int) -> None:
        """Run one source, again and again when it fails."""
        source, backoff = self._sources[number], Backoff(self._pauses)
        complaints = Complaints(
            lambda why: _log.warning("discovery by %s: %s; what it found before is kept", source.kind, why)
        )

        def tell(found: Sequence[Found]) -> None:
            backoff.reset()
            complaints.right()
            self._take(number, found)

        while True:
            try:
                await source.watch(tell, self._hurry[number])
            except SourceFailed as fault:
                complaints.wrong(str(fault))
            except Exception:  # noqa: BLE001 - a fault in one source must not end discovery
                _log.exception("discovery by %s broke down; it starts again", source.kind)
            await asyncio.sleep(backoff.next_s())

    def _take(self, number: int, found: Sequence[Found]) -> None:
        wanted = by_url(found)
        if wanted.keys() != self._wanted[number].keys():
            _log.info("discovery by %s: %d workers", self._sources[number].kind, len(wanted))
        self._wanted[number] = wanted
        self._reconcile()

    def _reconcile(self) -> None:
        wanted: dict[str, tuple[str, Found]] = {}
        for number, found in self._wanted.items():
            for url, each in found.items():
                wanted.setdefault(url, (self._sources[number].kind, each))
        self._notice_dismissals()
        self._dismissed &= {(url, each.identity) for url, (_, each) in wanted.items()}
        for url in [url for url in self._mine if url not in wanted]:
            self._remove(url)
        for url, (kind, each) in wanted.items():
            if url in self._mine:
                self._keep_as_wanted(self._mine[url], kind, each)
                continue
            if self._registry.find(url) is not None or (url, each.identity) in self._dismissed:
                continue
            if not self._add(kind, each):
                self._complaints.wrong(
                    f"there are as many workers as --max-workers allows; {url} and others are left out"
                )
                return
        self._complaints.right()

    def _notice_dismissals(self) -> None:
        """Find the workers that somebody else has removed, or is draining for good."""
        for url, entry in list(self._mine.items()):
            is_gone = self._registry.find(url) is not entry
            if url in self._leaving:
                if is_gone:
                    del self._mine[url]
                    self._leaving.discard(url)
            elif is_gone or entry.is_leaving:
                del self._mine[url]
                self._dismissed.add((url, entry.identity))

    def _remove(self, url: str) -> None:
        if url not in self._leaving:
            entry = self._mine[url]
            _log.info("worker %s is not wanted any more", url)
            self._leaving.add(url)
            self._registry.remove(entry.id, drain=True)
            self._notice_dismissals()

    def _keep_as_wanted(self, entry: RegisteredWorker, kind: str, each: Found) -> None:
        if each.identity != entry.identity:
            _log.info("worker %s is another one now", entry.url)
            self._registry.remove(entry.id)
            del self._mine[entry.url]
            self._leaving.discard(entry.url)
            self._add(kind, each)
            return
        if entry.url in self._leaving:
            self._leaving.discard(entry.url)
            self._registry.drain(entry.id, is_draining=False)
        if dict(entry.labels) != dict(each.labels) or entry.only_models != each.only_models:
            self._registry.relabel(entry.id, each.labels, each.only_models)

    def _add(self, kind: str, each: Found) -> bool:
        try:
            entry = self._registry.add(
                each.url, each.labels, origin=kind, identity=each.identity, only_models=each.only_models
            )
        except Overloaded:
            return False
        self._mine[each.url] = entry
        return True

    def _look_for_losses(self) -> None:
        """A worker was lost, perhaps because it has moved: its source looks sooner."""
        for number, found in self._wanted.items():
            hurry = self._hurry[number]
            if not hurry.is_set() and any(self._is_lost(url) for url in found):
                hurry.set()

    def _is_lost(self, url: str) -> bool:
        entry = self._mine.get(url)
        return entry is not None and (entry.worker is None or not entry.worker.is_connected)
