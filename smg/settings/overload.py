"""The settings that keep new work away from workers that have too much."""

from __future__ import annotations

from smg.settings.fields import Section, setting


class OverloadSettings(Section):
    """When a worker has too much work to get more."""

    worker_overload_waiting_requests: int | None = setting(
        8,
        "Sequences waiting in an engine from which on it is left out while another worker is below.",
        ge=1,
    )
    worker_overload_token_usage: float | None = setting(
        0.8,
        "Share of an engine's key-value cache that running work may take before it is left out likewise.",
        gt=0,
        le=1,
    )
    disable_worker_overload_protection: bool = setting(False, "No worker is left out for its load.")
    worker_overload_shed: bool = setting(
        False,
        "Refuse requests with 503 while every worker of the model is over its bound."
        " Default: the policy picks among all of them.",
    )
