"""What a kind of discovery is: it tells which workers are wanted, again whenever that changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from smg.errors import InvalidRequest
from smg.workers.address import parse_url

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence


class SourceFailed(Exception):
    """What is wanted cannot be told now; the text says why. What was wanted before stays wanted."""


@dataclass(frozen=True, slots=True)
class Found:
    """A worker that is wanted.

    Attributes:
        url: scheme://host:port, in its one form.
        labels: labels to give it.
        only_models: models that it is to be used for; empty for all that it serves.
        identity: what stands behind the address, where the source knows (a pod's uid): another one at the same address
            is another worker. Empty when it does not.
    """

    url: str
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    only_models: frozenset[str] = frozenset()
    identity: str = ""


class Source(Protocol):
    """One kind of discovery, set up. It is run once."""

    kind: str
    """Its name: the origin of the workers that it finds."""

    async def watch(self, tell: Callable[[Sequence[Found]], None], hurry: asyncio.Event) -> None:
        """Tell what is wanted, all of it each time, until cancelled.

        Args:
            tell: takes the wanted workers. Does not raise.
            hurry: set when a worker of this source is lost: a source that only looks now and then looks sooner. The
                source clears it.

        Raises:
            SourceFailed: for now it cannot go on; it is called again after a pause.
        """
        ...


class Complaints:
    """Says what is wrong with a source when it becomes so, not with every look at it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last = ""

    def wrong(self, why: str) -> None:
        """Something is wrong."""
        if why != self._last:
            self._last = why
            self._say(why)

    def right(self) -> None:
        """All is well again."""
        self._last = ""


def found_url(text: str) -> str:
    """The one form of an address that a source was given.

    Raises:
        SourceFailed: it is none.
    """
    try:
        return parse_url(text).url
    except InvalidRequest as fault:
        raise SourceFailed(fault.message) from None


def by_url(found: Iterable[Found]) -> dict[str, Found]:
    """The wanted workers by address; of two with one address the first counts."""
    result: dict[str, Found] = {}
    for each in found:
        result.setdefault(each.url, each)
    return result
