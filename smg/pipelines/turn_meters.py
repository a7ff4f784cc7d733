"""Gives each turn of a response a meter: the request's own to the first, further ones of the same trace to the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smg.pipelines.meter import Meters, RequestMeter
    from smg.types.context import RequestContext


class TurnMeters:
    """The meters of one response. To the metrics each turn is a request."""

    def __init__(self, meters: Meters, first: RequestMeter, context: RequestContext) -> None:
        self._meters = meters
        self._first = first
        self._context = context
        self._is_used = False

    def __call__(self) -> RequestMeter:
        """The next turn's."""
        if not self._is_used:
            self._is_used = True
            return self._first
        meter = self._meters.start(self._first.route, self._context)
        # The trace is the request's; nobody ends one of a turn.
        meter.trace = None
        meter.trace_headers = self._first.trace_headers
        return meter
