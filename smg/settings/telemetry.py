"""What the router tells about itself: its settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from smg.settings.fields import HIGHEST_PORT, HeaderName, Section, setting


def _check_buckets(bounds: tuple[float, ...]) -> tuple[float, ...]:
    if any(bound <= 0 for bound in bounds) or list(bounds) != sorted(set(bounds)):
        shown = " ".join(f"{bound:g}" for bound in bounds)
        raise ValueError(f"'{shown}' must be above 0 and ascending, none twice")
    return bounds


Buckets = Annotated[tuple[float, ...], AfterValidator(_check_buckets)]


class TelemetrySettings(Section):
    """What the router tells about itself."""

    log_level: Literal["debug", "info", "warn", "error"] = setting("info", "Least severity that is logged.")
    log_json: bool = setting(False, "One JSON object per log line.")
    access_log: bool = setting(False, "One log line per request.")
    server_timing: bool = setting(True, "Answers of models say in a Server-Timing header what took how long.")
    prometheus_host: str | None = setting(
        None, "Address of the metrics listener. Default: --host.", metavar="ADDRESS"
    )
    prometheus_port: int | None = setting(
        None,
        "Port that serves only /metrics. Default: /metrics on the HTTP port alone.",
        ge=1,
        le=HIGHEST_PORT,
    )
    prometheus_duration_buckets: Buckets = setting(
        (),
        "Upper bounds of the buckets of durations. Default: 5 ms to an hour.",
        metavar="SECONDS",
        max_length=64,
    )
    request_id_headers: tuple[HeaderName, ...] = setting(
        ("x-request-id", "x-correlation-id", "x-trace-id", "request-id"),
        "Headers that may carry the request id, first match wins.",
        metavar="HEADER",
        min_length=1,
    )
    enable_trace: bool = setting(
        False, "Send traces to an OpenTelemetry collector. Needs the extra smg[otel]."
    )
    otlp_traces_endpoint: str = setting(
        "localhost:4317",
        "The collector, which speaks OTLP over gRPC. With https:// over TLS.",
        metavar="HOST:PORT",
        min_length=1,
    )
    trace_sample_ratio: float = setting(
        1.0, "Share of the requests that are traced, of those whose caller has not decided.", ge=0, le=1
    )
