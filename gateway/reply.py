"""One HTTP answer, pushed from callbacks: what a handler writes is on the socket when write() returns.

A server's ASGI `send` is a coroutine that suspends only while the client's socket is full. AsgiReply runs it to
its end by hand, without a task. While it is suspended, what is written is held back and merged, up to a bound; a
client that stays behind it is dropped. A client's leaving cancels the task that answers it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    Send = Callable[[dict[str, Any]], Awaitable[None]]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Header = tuple[bytes, bytes]


class Reply(Protocol):
    """What a handler writes to, over HTTP and behind Envoy alike. Called on the event loop; nothing blocks."""

    is_started: bool
    idle_ticks: int
    """Set to zero by every write; counted up by KeepAlive."""

    def start(self, status: int, headers: Sequence[Header]) -> None:
        """Set status and headers; they leave with the first body bytes."""
        ...

    def write(self, data: bytes) -> None:
        """Send more of the body."""
        ...

    def end(self, data: bytes = b"") -> None:
        """Send the last of the body. Writes after it are dropped."""
        ...


class HandDriven:
    """Runs one coroutine to its end from the event loop's callbacks, without a task.

    Futures are all that may be awaited inside. on_done gets the result, or the exception that ended it.
    """

    __slots__ = ("_coroutine", "_on_done")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], on_done: Callable[[Any, Exception | None], None]
    ) -> None:
        self._coroutine = coroutine
        self._on_done = on_done

    def step(self, _: Any = None) -> None:
        """Run until the coroutine waits or ends."""
        try:
            waited = self._coroutine.send(None)
        except StopIteration as stop:
            self._on_done(stop.value, None)
        except Exception as error:  # noqa: BLE001 - whatever the server raises, it ends this client only
            self._on_done(None, error)
        else:
            self.resume_after(waited)

    def resume_after(self, waited: Any) -> None:
        """Go on when what the coroutine waits for is done. For a coroutine that somebody else has started."""
        if waited is None:
            asyncio.get_running_loop().call_soon(self.step)
            return
        # A task would clear this flag to show that it knows the future is awaited.
        waited._asyncio_future_blocking = False  # noqa: SLF001
        waited.add_done_callback(self.step)

    def close(self) -> None:
        """Give up."""
        self._coroutine.close()


class AsgiReply:
    """A Reply over ASGI.

    Args:
        send: the server's send.
        max_held_bytes: most bytes to hold back for a slow client before it is dropped.
        on_drop: called once when the client is too slow or its connection is broken.
    """

    def __init__(self, send: Send, max_held_bytes: int, on_drop: Callable[[], None]) -> None:
        self._send = send
        self._max_held_bytes = max_held_bytes
        self._on_drop = on_drop
        self._head: dict[str, Any] | None = None
        self._suspended: HandDriven | None = None
        self._sending = False
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._ends = False
        self._drained: asyncio.Future[None] | None = None
        self.status = 0
        self.is_started = False
        self.is_ended = False
        self.is_dropped = False
        self.is_too_slow = False
        self.idle_ticks = 0

    def start(self, status: int, headers: Sequence[Header]) -> None:
        """Set status and headers; they leave with the first body bytes."""
        self.is_started = True
        self.status = status
        self._head = {"type": "http.response.start", "status": status, "headers": headers}

    def write(self, data: bytes) -> None:
        """Send more of the body; held back while the client is slow."""
        self.idle_ticks = 0
        if self._sending or self.is_ended or self._head is not None:
            self._write_slow(data, ends=False)
            return
        self._drive({"type": "http.response.body", "body": data, "more_body": True})

    def end(self, data: bytes = b"") -> None:
        """Send the last of the body."""
        self._write_slow(data, ends=True)

    async def drained(self, timeout_s: float) -> None:
        """Wait until the server has taken what was held back, else drop the client.

        A server closes a connection whose application returns early.
        """
        if not self._sending:
            return
        try:
            async with asyncio.timeout(timeout_s):
                while self._sending and not self.is_dropped:
                    self._drained = asyncio.get_running_loop().create_future()
                    await self._drained
        except TimeoutError:
            self.is_too_slow = True
            self.close()

    def forget(self) -> None:
        """Let go of whom to tell; nobody is left to be told."""
        self._on_drop = _nobody

    def close(self) -> None:
        """Forget the client; nothing more is sent."""
        self.is_ended = self.is_dropped = True
        self._held.clear()
        if self._suspended is not None:
            self._suspended.close()
            self._suspended = None

    def _write_slow(self, data: bytes, *, ends: bool) -> None:
        if self.is_ended:
            return
        self.is_ended = ends
        if self._sending:
            self._hold(data, ends=ends)
            return
        if self._head is not None:
            head, self._head = self._head, None
            self._drive(head)
            if self._sending:
                self._hold(data, ends=ends)
                return
        self._drive({"type": "http.response.body", "body": data, "more_body": not ends})

    def _hold(self, data: bytes, *, ends: bool) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        self._ends = self._ends or ends
        if self._held_bytes > self._max_held_bytes:
            self.is_too_slow = True
            self._drop()

    def _drive(self, message: dict[str, Any]) -> None:
        """Hand a message to the server. All but always it takes it at once."""
        coroutine: Any = self._send(message)
        try:
            waited = coroutine.send(None)
        except StopIteration:
            return
        except Exception:  # noqa: BLE001 - a broken connection, in the words of whichever server
            self._drop()
            return
        self._sending = True
        self._suspended = HandDriven(coroutine, self._sent)
        self._suspended.resume_after(waited)

    def _sent(self, _: Any, error: Exception | None) -> None:
        self._sending = False
        self._suspended = None
        if error is not None:
            self._drop()
        elif self._held and not self.is_dropped:
            data, ends = b"".join(self._held), self._ends
            self._held.clear()
            self._held_bytes = 0
            self._drive({"type": "http.response.body", "body": data, "more_body": not ends})
        if self._drained is not None and not self._drained.done() and not self._sending:
            self._drained.set_result(None)

    def _drop(self) -> None:
        if not self.is_dropped:
            self.is_dropped = self.is_ended = True
            self._held.clear()
            self._on_drop()


def _nobody() -> None:
    """Is told when nobody else is."""


def watch_disconnect(receive: Receive, on_gone: Callable[[], None]) -> HandDriven:
    """Call on_gone when the client leaves, or when its answer is complete (ASGI does not tell these apart).

    The whole request body must have been received.
    """

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    driven = HandDriven(wait(), lambda _result, _error: on_gone())
    driven.step()
    return driven
