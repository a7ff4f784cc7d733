"""Makes the Grafana dashboard: a table of rows, each of panels, each with its queries.

The metrics are those of docs/metrics.md; a test compares every name and label. Format: Grafana's dashboard JSON model,
schema version 39.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

_COLUMNS = 24
_HEIGHT = 8
_SELECTED = '{instance=~"$instance"}'
_OF_MODEL = '{instance=~"$instance",model=~"$model"}'
_OF_WORKER = '{instance=~"$instance",worker=~"$worker"}'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """A panel.

    Attributes:
        title: what it shows.
        unit: Grafana's id of the unit.
        queries: (PromQL, legend) each.
        kind: Grafana's id of the kind of panel.
        stacks: whether the lines are stacked.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    stacks: bool = False


def _rate(metric: str, by: str, selector: str) -> str:
    return f"sum by ({by}) (rate({metric}{selector}[$__rate_interval]))"


def _quantile(quantile: float, metric: str, by: str, selector: str) -> str:
    return f"histogram_quantile({quantile}, {_rate(metric + '_bucket', 'le, ' + by, selector)})"


def _quantiles(metric: str, by: str = "model", selector: str = _OF_MODEL) -> tuple[tuple[str, str], ...]:
    return tuple(
        (_quantile(quantile, metric, by, selector), f"p{quantile * 100:g} {{{{{by}}}}}")
        for quantile in (0.5, 0.95, 0.99)
    )


_FAILED = _rate(
    "smg_requests_total", "model", '{instance=~"$instance",model=~"$model",outcome=~"failed|timeout"}'
)

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Now",
        (
            Panel("Routers", "short", ((f"count(smg_build_info{_SELECTED})", ""),), "stat"),
            Panel(
                "Engines ready",
                "short",
                ((f"count(max by (worker) (smg_worker_ready{_OF_WORKER}) == 1)", ""),),
                "stat",
            ),
            Panel("Requests running", "short", ((f"sum(smg_admission_running{_SELECTED})", ""),), "stat"),
            Panel("Requests waiting", "short", ((f"sum(smg_admission_waiting{_SELECTED})", ""),), "stat"),
        ),
    ),
    (
        "Requests",
        (
            Panel(
                "Requests a second, by model",
                "reqps",
                ((_rate("smg_requests_total", "model", _OF_MODEL), "{{model}}"),),
            ),
            Panel(
                "Share that fails or runs out of time",
                "percentunit",
                ((f"{_FAILED} / {_rate('smg_requests_total', 'model', _OF_MODEL)}", "{{model}}"),),
            ),
            Panel(
                "Outcomes a second",
                "reqps",
                ((_rate("smg_requests_total", "outcome", _OF_MODEL), "{{outcome}}"),),
                stacks=True,
            ),
            Panel(
                "Errors a second, by code",
                "reqps",
                ((_rate("smg_errors_total", "code", _SELECTED), "{{code}}"),),
            ),
            Panel(
                "HTTP answers a second, by status",
                "reqps",
                ((_rate("smg_http_responses_total", "status", _SELECTED), "{{status}}"),),
            ),
            Panel(
                "gRPC calls a second, by code",
                "reqps",
                ((_rate("smg_grpc_responses_total", "code", _SELECTED), "{{code}}"),),
            ),
        ),
    ),
    (
        "Time",
        (
            Panel("Time to first token", "s", _quantiles("smg_time_to_first_token_seconds")),
            Panel("Time between tokens", "s", _quantiles("smg_inter_token_seconds")),
            Panel("Whole request", "s", _quantiles("smg_request_duration_seconds")),
            Panel("Wait for a place", "s", _quantiles("smg_queue_wait_seconds")),
            Panel("Template and tokenizer", "s", _quantiles("smg_tokenize_seconds")),
        ),
    ),
    (
        "Tokens",
        (
            Panel(
                "Tokens a second",
                "short",
                (
                    (_rate("smg_prompt_tokens_total", "model", _OF_MODEL), "prompt {{model}}"),
                    (_rate("smg_completion_tokens_total", "model", _OF_MODEL), "output {{model}}"),
                ),
            ),
            Panel(
                "Share of the prompts that caches cover",
                "percentunit",
                (
                    (
                        f"{_rate('smg_cached_tokens_total', 'model', _OF_MODEL)}"
                        f" / {_rate('smg_prompt_tokens_total', 'model', _OF_MODEL)}",
                        "{{model}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Admission and faults",
        (
            Panel(
                "Running and waiting",
                "short",
                (
                    (f"sum by (instance) (smg_admission_running{_SELECTED})", "running {{instance}}"),
                    (f"sum by (instance) (smg_admission_waiting{_SELECTED})", "waiting {{instance}}"),
                ),
            ),
            Panel(
                "Turned away a second, by reason",
                "reqps",
                ((_rate("smg_admission_rejections_total", "reason", _SELECTED), "{{reason}}"),),
            ),
            Panel(
                "Attempts after the first, a second",
                "reqps",
                (
                    (_rate("smg_retries_total", "route", _SELECTED), "again {{route}}"),
                    (_rate("smg_failovers_total", "model", _OF_MODEL), "moved {{model}}"),
                ),
            ),
            Panel(
                "Streams cut because nobody read",
                "reqps",
                ((_rate("smg_slow_reader_aborts_total", "instance", _SELECTED), "{{instance}}"),),
            ),
        ),
    ),
    (
        "Engines",
        (
            Panel(
                "Sequences",
                "short",
                (
                    (f"max by (worker) (smg_worker_running_sequences{_OF_WORKER})", "running {{worker}}"),
                    (f"max by (worker) (smg_worker_waiting_sequences{_OF_WORKER})", "waiting {{worker}}"),
                ),
            ),
            Panel(
                "Use of the key-value cache",
                "percentunit",
                (
                    (
                        f"max by (worker) (smg_worker_kv_used_tokens{_OF_WORKER}"
                        f" / (smg_worker_kv_capacity_tokens{_OF_WORKER} > 0))",
                        "{{worker}}",
                    ),
                ),
            ),
            Panel(
                "Tokens a second",
                "short",
                ((f"max by (worker) (smg_worker_tokens_per_second{_OF_WORKER})", "{{worker}}"),),
            ),
            Panel(
                "Steps a second",
                "short",
                ((f"max by (worker) (smg_worker_steps_per_second{_OF_WORKER})", "{{worker}}"),),
            ),
            Panel(
                "Picks a second",
                "reqps",
                ((_rate("smg_worker_picks_total", "worker", _OF_WORKER), "{{worker}}"),),
                stacks=True,
            ),
            Panel(
                "Workers by state",
                "short",
                ((f"sum by (state) (smg_worker_state{_OF_WORKER})", "{{state}}"),),
                stacks=True,
            ),
            Panel(
                "Circuit breaker (0 closed, 1 open, 2 half open)",
                "short",
                ((f"max by (worker) (smg_worker_cb_state{_OF_WORKER})", "{{worker}}"),),
            ),
            Panel(
                "New connections in a quarter of an hour",
                "short",
                (
                    (
                        f"sum by (worker) (increase(smg_worker_connections_total{_OF_WORKER}[15m]))",
                        "{{worker}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Routers",
        (
            Panel(
                "How late the event loop is",
                "s",
                _quantiles("smg_event_loop_lag_seconds", "instance", _SELECTED),
            ),
            Panel(
                "CPU, cores",
                "short",
                (
                    (
                        "sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval])"
                        f" and on (instance) smg_build_info{_SELECTED})",
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "Memory",
                "bytes",
                (
                    (
                        "sum by (instance) (process_resident_memory_bytes"
                        f" and on (instance) smg_build_info{_SELECTED})",
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "Traces dropped a second",
                "short",
                ((_rate("smg_trace_spans_dropped_total", "instance", _SELECTED), "{{instance}}"),),
            ),
        ),
    ),
)


def dashboard_text(indent: int | None) -> str:
    """The dashboard as a file. Args: indent: None for one line."""
    found = {
        "uid": "smg",
        "title": "SMG",
        "tags": ["smg"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": _panels(),
    }
    return json.dumps(found, indent=indent) + "\n"


def _variables() -> list[dict[str, Any]]:
    source: dict[str, Any] = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }
    asked = (
        ("instance", "Router", "label_values(smg_build_info, instance)"),
        ("model", "Model", "label_values(smg_requests_total, model)"),
        ("worker", "Engine", "label_values(smg_worker_ready, worker)"),
    )
    return [source, *(_variable(*each) for each in asked)]


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": "All", "value": "$__all"},
        "sort": 1,
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        bar: dict[str, Any] = {"type": "row", "title": title, "collapsed": False, "panels": []}
        panels.append({"id": len(panels) + 1, **bar, "gridPos": _place(0, top, _COLUMNS, 1)})
        top += 1
        width = 6 if row[0].kind == "stat" else 12
        height = _HEIGHT // 2 if row[0].kind == "stat" else _HEIGHT
        for number, panel in enumerate(row):
            across, down = number * width % _COLUMNS, number * width // _COLUMNS * height
            place = _place(across, top + down, width, height)
            panels.append({"id": len(panels) + 1, **_panel(panel), "gridPos": place})
        top += -(-len(row) * width // _COLUMNS) * height
    return panels


def _place(across: int, down: int, width: int, height: int) -> dict[str, int]:
    return {"x": across, "y": down, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
        for number, (query, legend) in enumerate(panel.queries)
    ]
    shown: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.stacks:
        shown["custom"] = {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": shown, "overrides": []},
        "targets": targets,
    }
