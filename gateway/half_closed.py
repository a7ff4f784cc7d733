"""Tells a client that has only finished sending from one that has left: what arrives is the same end of input.

A half-closed connection does not imply that its client wants no answer (RFC 9112, section 6.3). The two differ in how
they take what is written to them: the kernel of a client that has left answers with a reset. So something is written
that means nothing (connection.py), and the socket is asked for the reset. A stream of output that goes on would show it
as well; an answer that is long in coming would not. Servers that take the end of input for the end of the client:
hyper, uvicorn, nginx as a proxy, Envoy; those that do not: Node.js, HAProxy, Hypercorn.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# Most answers that need no engine are there before anything has to be written to find out.
PROBE_AFTER_S = 0.005
# The reset is there after a round trip. Each pause is twice the one before.
FIRST_PAUSE_S = 0.001
# Who has only finished sending may leave later, and that as well shows only when something is written. The longest
# pause bounds how long such a client is served for nothing, twice.
PROBE_PAUSE_S = 0.05
LONGEST_PAUSE_S = 16.0


class LeaveWatch:
    """Has something written to a socket that is no longer read, and looks until it has an error, or until stopped."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        probe: Callable[[], None],
        on_left: Callable[[], None],
    ) -> None:
        """Args: probe writes something; on_left is called once if the client has left."""
        self._loop = loop
        self._socket = connected
        self._probe = probe
        self._on_left = on_left
        self._pause_s = FIRST_PAUSE_S
        self._timer = loop.call_later(PROBE_AFTER_S, self._begin)

    def stop(self) -> None:
        """The connection is over."""
        self._timer.cancel()

    def _begin(self) -> None:
        self._timer = self._loop.call_later(self._pause_s, self._look)
        self._probe()

    def _look(self) -> None:
        try:
            has_left = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
        except OSError:
            has_left = True
        if has_left:
            self._on_left()
            return
        if self._pause_s > PROBE_PAUSE_S:
            self._probe()
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._timer = self._loop.call_later(self._pause_s, self._look)
