"""Keeps what is made of files up to date: looked at now and then, made anew when a file has changed.

A change that cannot be used (half a pair was written, say) is told once, and what was made before stays.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from smg.errors import BadTlsFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.tls.files import TlsFile

    # Of each file: when it was changed, its length, and which it is. Kubernetes swaps links, which changes the last.
    Stamp = tuple[tuple[int, int, int], ...]

_log = logging.getLogger(__name__)

LOOK_S = 5.0

ValueT = TypeVar("ValueT")


class Reloading(Generic[ValueT]):
    """A value and the files it is made of.

    Attributes:
        value: as last made. Replaced whole, so that any thread may read it.
    """

    def __init__(self, make: Callable[[], ValueT], files: Sequence[TlsFile]) -> None:
        """Make the value.

        Raises:
            BadTlsFile: it cannot be made.
        """
        self._make = make
        self._files = tuple(files)
        self._stamp = self._look()
        self.value = make()

    def refresh(self) -> bool:
        """Look at the files, and make the value anew if one has changed. Reads files: for a thread.

        Returns: whether there is a new value.
        """
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.value = self._make()
        except BadTlsFile as error:
            _log.error("changed files for TLS cannot be used, the former stay in use: %s", error.message)
            return False
        _log.info("read again: %s", ", ".join(str(file) for file in self._files))
        return True

    def _look(self) -> Stamp:
        marks: list[tuple[int, int, int]] = []
        for file in self._files:
            try:
                status = Path(file.path).stat()
            except OSError:
                marks.append((0, 0, 0))
            else:
                marks.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(marks)
