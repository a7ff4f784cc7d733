"""Gets a model's tokenizer files: the operator's own directory, else from a worker, once per tokenizer.

Downloads are kept by the fingerprint that the worker announces, so replicas of a model share one, and a router that
restarts with a cache directory of its own asks nobody. A directory appears by one rename, complete or not at all:
several routers may share the cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from smg.errors import InternalError, ModelNotFound, SmgError, WorkerUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.workers.registered import RegisteredWorker
    from smg.workers.registry import WorkerRegistry

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_PARTIAL = "partial-"

_log = logging.getLogger(__name__)


class TokenizerStore:
    """Tokenizer directories by model."""

    def __init__(
        self, registry: WorkerRegistry, own_dir: Path | None, cache_dir: Path | None, *, keep: int = 16
    ) -> None:
        """Set up; nothing is fetched yet.

        Args:
            registry: who serves which model.
            own_dir: the operator's directory for every model; None asks the workers.
            cache_dir: where downloads are kept; None for a temporary directory that `close` removes.
            keep: number of downloaded tokenizers kept; of more, the one not used for longest goes.
        """
        self._registry = registry
        self._own_dir = own_dir
        self._cache_dir = cache_dir
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._keep = keep
        self._downloads: dict[str, asyncio.Task[Path]] = {}

    async def directory(self, model_id: str) -> Path:
        """A directory with the tokenizer files of a model, to be read at once: it may go when others come.

        Raises:
            ModelNotFound: no worker serves the model.
            WorkerUnavailable: no worker of the model is ready to give it.
            InternalError: the operator's directory is missing, or every worker failed to give it.
        """
        if self._own_dir is not None:
            if not await asyncio.to_thread(self._own_dir.is_dir):
                raise InternalError(f"no tokenizer directory {self._own_dir}", code="tokenizer_unavailable")
            return self._own_dir
        fingerprint = self._fingerprint(model_id)
        task = self._downloads.get(fingerprint)
        if task is None:
            task = asyncio.create_task(self._obtain(model_id, fingerprint))
            self._downloads[fingerprint] = task
            task.add_done_callback(lambda _: self._downloads.pop(fingerprint, None))
        # Shielded: others wait for the same download.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End running downloads, and remove the temporary directory if there is one."""
        tasks = list(self._downloads.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.cleanup)
            self._temporary = None

    def _fingerprint(self, model_id: str) -> str:
        card = self._registry.card(model_id)
        if card is None:
            raise ModelNotFound(f"no worker serves model {model_id!r}", param="model")
        if _FINGERPRINT.fullmatch(card.tokenizer_sha256):
            return card.tokenizer_sha256
        # No fingerprint: one and the same engine process does not change its tokenizer.
        sources = [
            f"{entry.url} {entry.description.instance_id}"
            for entry in self._registry.models()[model_id][:1]
            if entry.description
        ]
        return hashlib.sha256("\n".join([model_id, *sources]).encode()).hexdigest()

    async def _obtain(self, model_id: str, fingerprint: str) -> Path:
        root = await asyncio.to_thread(self._root)
        target = root / fingerprint
        if await asyncio.to_thread(_is_there, target):
            return target
        workers = [entry for entry in self._registry.models().get(model_id, ()) if entry.is_ready]
        if not workers:
            raise WorkerUnavailable(f"no worker is ready to give the tokenizer of model {model_id!r}")
        await self._download(workers, model_id, target)
        await asyncio.to_thread(_prune, root, self._keep)
        return target

    async def _download(self, workers: Sequence[RegisteredWorker], model_id: str, target: Path) -> None:
        faults: list[str] = []
        for entry in workers:
            if entry.worker is None:
                continue
            partial = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=_PARTIAL, dir=target.parent))
            try:
                await entry.worker.fetch_tokenizer(model_id, partial)
                await asyncio.to_thread(_put, partial, target)
            except SmgError as fault:
                _log.warning("tokenizer of %s not had from %s: %s", model_id, entry.url, fault.message)
                faults.append(fault.message)
            else:
                _log.info("tokenizer of %s fetched from %s", model_id, entry.url)
                return
            finally:
                await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
        raise InternalError(
            f"the tokenizer of model {model_id!r} cannot be had ({'; '.join(faults)})",
            code="tokenizer_unavailable",
        )

    def _root(self) -> Path:
        if self._cache_dir is not None:
            self._cache_dir.mkdir(parents=True, exist_ok=True)
            return self._cache_dir
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="smg-tokenizers-")
        return Path(self._temporary.name)


def _is_there(directory: Path) -> bool:
    """Look for a download, and mark it as used just now."""
    if not directory.is_dir():
        return False
    directory.touch()
    return True


def _put(partial: Path, target: Path) -> None:
    """Move a finished download to its place. Another router may have been first: its files are the same."""
    try:
        partial.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        return
    target.chmod(0o755)


def _prune(root: Path, keep: int) -> None:
    """Remove the downloads that were not used for longest."""
    kept = [path for path in root.iterdir() if path.is_dir() and _FINGERPRINT.fullmatch(path.name)]
    kept.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[keep:]:
        shutil.rmtree(path, ignore_errors=True)
