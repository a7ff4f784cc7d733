"""Every bound that a servicer keeps towards its routers, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of the sessions of one servicer.

    Attributes:
        max_sessions: sessions at a time; a router holds one.
        max_sequences: sequences of one session that have not ended, waiting ones included.
        max_unsent_events: events that a router which does not read may leave behind before its session is ended.
        max_unsent_bytes: bytes of such events.
        max_message_bytes: longest message in either direction.
        load_interval_s: pause between load records while work runs.
    """

    max_sessions: int = 256
    max_sequences: int = 16_384
    max_unsent_events: int = 16_384
    max_unsent_bytes: int = 64 * MIB
    max_message_bytes: int = 256 * MIB
    load_interval_s: float = 1.0
