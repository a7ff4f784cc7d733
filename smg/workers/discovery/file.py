"""Workers that a file lists, read again whenever it changes.

The file is YAML or JSON: a list of addresses, or of mappings with `url` and, if wanted, `labels` and `models`; or a mapping
with such a list as `workers`. A file that is gone, broken, or still being written changes nothing and is complained of.
"""

from __future__ import annotations

import asyncio
import json
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from smg.workers.discovery.base import Complaints, Found, SourceFailed, by_url, found_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Signature = tuple[int, int, int]

# Seconds between looks at whether the file has changed. Two looks that see the same make it worth reading: who writes
# in place may stop between two lines, where half a list reads like a whole one.
_LOOK_S = 1.0

_MAX_BYTES = 4 * 1024 * 1024
_MAX_LABELS = 64
_MEMBERS = ("url", "labels", "models", "model_id", "id", "worker_type")


class FileSource:
    """The workers of one file."""

    kind = "file"

    def __init__(
        self,
        path: Path,
        interval_s: float,
        max_workers: int,
        complain: Callable[[str], None],
        look_s: float = _LOOK_S,
    ) -> None:
        """Set up.

        Args:
            path: the file; it need not be there yet.
            interval_s: pause between readings of a file that seems unchanged.
            max_workers: a file that lists more is refused.
            complain: takes what is wrong with the file.
            look_s: pause between looks.
        """
        self._path = path
        self._interval_s = interval_s
        self._max_workers = max_workers
        self._complaints = Complaints(complain)
        self._look_s = look_s

    async def watch(self, tell: Callable[[Sequence[Found]], None], hurry: asyncio.Event) -> None:
        """Look every second, read what has changed and rests."""
        del hurry  # a change is seen within a second in any case
        now = asyncio.get_running_loop().time
        pace = Pace(self._interval_s)
        while True:
            try:
                seen = await asyncio.to_thread(_signature, self._path)
                if pace.is_due(now(), seen):
                    tell(await asyncio.to_thread(read, self._path, self._max_workers))
                    self._complaints.right()
            except SourceFailed as fault:
                pace.looked()
                self._complaints.wrong(str(fault))
            await asyncio.sleep(self._look_s)


class Pace:
    """Tells when a file is to be read: when it has changed and rests, and now and then."""

    def __init__(self, interval_s: float) -> None:
        """Args: interval_s: pause between readings of a file that seems unchanged."""
        self._interval_s = interval_s
        self._seen: Signature | None = None
        self._read: Signature | None = None
        self._read_at = 0.0
        # What is there when the router starts was not written this very moment.
        self._is_start = True

    def looked(self) -> None:
        """The file could not be looked at, or not be read."""
        self._is_start = False

    def is_due(self, now: float, seen: Signature) -> bool:
        """Take a look at the file. Returns True when it is to be read now; it then counts as read."""
        is_at_rest = self._is_start or seen == self._seen
        self._seen, self._is_start = seen, False
        if not is_at_rest or (seen == self._read and now - self._read_at < self._interval_s):
            return False
        self._read, self._read_at = seen, now
        return True


def read(path: Path, max_workers: int) -> list[Found]:
    """Read a file that rests.

    Raises:
        SourceFailed: it cannot be read, changes meanwhile, or is not what it should be.
    """
    before = _signature(path)
    if before[1] > _MAX_BYTES:
        raise SourceFailed(f"{path} has {before[1]} bytes; at most {_MAX_BYTES} are read")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise SourceFailed(f"{path} cannot be read: {fault}") from fault
    if _signature(path) != before:
        raise SourceFailed(f"{path} is being written")
    try:
        return parse(text, max_workers)
    except SourceFailed as fault:
        raise SourceFailed(f"{path}: {fault}") from None


def parse(text: str, max_workers: int) -> list[Found]:
    """Turn the text of a file into the workers that it lists.

    Raises:
        SourceFailed: what is wrong with it.
    """
    document = _document(text)
    if isinstance(document, dict):
        mapping = cast("dict[Any, Any]", document)
        unknown = [str(name) for name in mapping if name not in ("workers", "version")]
        if unknown or "workers" not in mapping:
            raise SourceFailed(
                f"expected a list, or a mapping with 'workers'; got {', '.join(map(str, mapping))[:200]}"
            )
        if mapping.get("version", 1) != 1:
            raise SourceFailed(f"version is {str(mapping['version'])[:40]}; only 1 is known")
        document = mapping["workers"]
    if not isinstance(document, list):
        raise SourceFailed("no list of workers; one of none is []")
    entries = cast("list[Any]", document)
    if len(entries) > max_workers:
        raise SourceFailed(f"{len(entries)} workers; --max-workers allows {max_workers}")
    found = [_found(entry, f"worker {number}") for number, entry in enumerate(entries, 1)]
    if len(by_url(found)) < len(found):
        urls = [each.url for each in found]
        raise SourceFailed(f"{next(url for url in urls if urls.count(url) > 1)} is listed twice")
    return found


def _document(text: str) -> Any:
    import yaml

    # The C library's, where PyYAML was built with it.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if text.lstrip().startswith(("{", "[")):
            try:
                return json.loads(text)
            except ValueError:
                # YAML has such lists, too.
                pass
        return yaml.load(text, loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        raise SourceFailed(f"neither YAML nor JSON: {' '.join(str(fault).split())[:300]}") from None


def _found(entry: Any, where: str) -> Found:
    if isinstance(entry, str):
        return Found(found_url(entry))
    if not isinstance(entry, dict):
        raise SourceFailed(f"{where} is neither an address nor a mapping with 'url'")
    members = cast("dict[Any, Any]", entry)
    unknown = [str(name)[:40] for name in members if name not in _MEMBERS]
    if unknown:
        raise SourceFailed(f"{where} has the unknown member {unknown[0]!r}; known: {', '.join(_MEMBERS)}")
    url = members.get("url")
    if not isinstance(url, str):
        raise SourceFailed(f"{where} has no 'url'")
    if members.get("worker_type", "regular") != "regular":
        raise SourceFailed(
            f"{where} has the worker_type {str(members['worker_type'])[:40]!r}; only 'regular' is served"
        )
    models: Any = [] if members.get("models") is None else members["models"]
    if members.get("model_id") not in (None, ""):
        models = [members["model_id"]]
    if not isinstance(models, list) or not all(isinstance(each, str) for each in cast("list[Any]", models)):
        raise SourceFailed(f"{where}: models must be a list of names")
    return Found(
        found_url(url),
        _labels(members.get("labels"), where),
        frozenset(cast("list[str]", models)),
        str(members.get("id") or ""),
    )


def _labels(labels: Any, where: str) -> MappingProxyType[str, str]:
    if labels is None:
        return MappingProxyType({})
    if not isinstance(labels, dict) or len(cast("dict[Any, Any]", labels)) > _MAX_LABELS:
        raise SourceFailed(f"{where}: labels must be a mapping of at most {_MAX_LABELS} names to values")
    # YAML reads true and 1 as no texts; what was meant is clear.
    return MappingProxyType({str(name): str(value) for name, value in cast("dict[Any, Any]", labels).items()})


def _signature(path: Path) -> Signature:
    """What changes when a file does."""
    try:
        status = os.stat(path)  # noqa: PTH116 - pathlib's follows links as well, and costs more
    except OSError as fault:
        raise SourceFailed(f"{path} cannot be read: {fault.strerror}") from fault
    return status.st_mtime_ns, status.st_size, status.st_ino
