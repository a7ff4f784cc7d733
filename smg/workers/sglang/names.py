"""Names of requests as an SGLang server knows them: the router's request id where it is free."""

from __future__ import annotations

from bisect import bisect_left

# What the names begin with that are not ids.
_OWN = "~"


class RequestNames:
    """The names in use on one worker. None is the beginning of another.

    A server mixes up two requests of one name, and an abort ends every request whose name begins with the one that it
    gives (SGLang's scheduler compares so): requests that share an id, or whose ids begin alike, must not end each
    other. A name is free again when its sequences have ended, and its abort has been answered.
    """

    def __init__(self) -> None:
        self._used: list[str] = []

    def take(self, request_id: str, sequence: int) -> str:
        """A name that nobody uses, for the request whose first sequence has this number."""
        name = request_id.lstrip(_OWN)
        if not name or not self._is_free(name):
            name = self.own(name, sequence)
        self._used.insert(bisect_left(self._used, name), name)
        return name

    def own(self, request_id: str, sequence: int) -> str:
        """A name that no other begins with, now or later, and that needs not be freed."""
        # No id that is used as it is begins with the mark, and no number is followed by the same sign as another.
        return f"{_OWN}{sequence}-{request_id}"

    def free(self, name: str) -> None:
        """Nobody uses the name any more."""
        place = bisect_left(self._used, name)
        if self._used[place : place + 1] == [name]:
            del self._used[place]

    def _is_free(self, name: str) -> bool:
        # In sorted order a name stands right behind its own beginnings, and right before what it is the beginning of.
        place = bisect_left(self._used, name)
        before = self._used[place - 1] if place else None
        after = self._used[place] if place < len(self._used) else ""
        return not after.startswith(name) and (before is None or not name.startswith(before))
