"""Makes the kernel notice a peer that is gone, without HTTP/2 pings: servers cut off clients that ping often."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smg.workers.options import WorkerOptions

_PROBES = 3


def keep_alive(connected: socket.socket | None, options: WorkerOptions) -> None:
    """Set a socket's probes so that a dead peer is noticed after keepalive_s + keepalive_timeout_s."""
    if connected is None:
        return
    idle_s, wait_s = options.keepalive_s, options.keepalive_timeout_s
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    values = {
        "TCP_KEEPIDLE": max(1, int(idle_s)),
        "TCP_KEEPINTVL": max(1, int(wait_s / _PROBES)),
        "TCP_KEEPCNT": _PROBES,
        "TCP_USER_TIMEOUT": int((idle_s + wait_s) * 1000),
    }
    for name, value in values.items():
        # Linux has them all, other systems some.
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
