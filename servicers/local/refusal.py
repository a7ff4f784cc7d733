"""The one exception by which a single piece of work is refused or lost, with the gRPC code that its Failed carries."""

from __future__ import annotations

# google.rpc.Code
INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 3, 5, 8, 12, 13, 14


class RefusalError(Exception):
    """A piece of work cannot be done; everything else goes on.

    Attributes:
        code: google.rpc.Code.
        message: what is wrong, the value, and what is allowed; shown to the client.
        is_retryable: another engine, or this one later, may do it.
    """

    def __init__(self, message: str, *, code: int = INVALID_ARGUMENT, is_retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_retryable = is_retryable
