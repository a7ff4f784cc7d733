"""Names of requests as an SGLang server knows them: the router's request id where it is free."""

from __future__ import annotations


class RequestNames:
    """The names in use on one worker.

    A server mixes up two requests of one name, and the n choices of a request share its id: those after the first
    get a name of their own. A name is free again when its sequence has ended, and its abort has been answered.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()

    def take(self, request_id: str, sequence: int) -> str:
        """A name that nobody uses."""
        name = request_id or f"smg-{sequence}"
        if name in self._used:
            name = f"{name}-{sequence}"
        self._used.add(name)
        return name

    def free(self, name: str) -> None:
        """Nobody uses the name any more."""
        self._used.discard(name)
