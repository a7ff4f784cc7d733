"""Draws a fleet: a line or two about the gateway, and a table of its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from smg.cli.top.snapshot import WorkerRates

if TYPE_CHECKING:
    from rich.console import RenderableType

    from smg.cli.top.snapshot import Rates, Snapshot, WorkerNow

_COLOURS = {"ready": "green", "connecting": "yellow", "draining": "cyan", "unhealthy": "red"}
_COLUMNS = ("inflight", "running", "waiting", "cache", "tokens/s", "steps/s", "requests/s")
_NONE = "-"


def fleet_view(url: str, snapshot: Snapshot, rates: Rates | None, fault: str = "") -> RenderableType:
    """Draw one look.

    Args:
        url: the gateway.
        snapshot: the latest look.
        rates: since the look before; None before there is one.
        fault: why there is no later look; empty if there is.
    """
    parts: list[RenderableType] = [*_head(url, snapshot, rates), _table(snapshot, rates)]
    parts += [
        Text(f"{worker.url}: {worker.reason}", style="yellow") for worker in snapshot.workers if worker.reason
    ]
    if fault:
        parts.append(Text(fault, style="red"))
    return Group(*parts)


def _head(url: str, snapshot: Snapshot, rates: Rates | None) -> list[Text]:
    ready = sum(worker.state == "ready" for worker in snapshot.workers)
    totals = snapshot.totals
    name = f"smg {totals.version}".strip() if totals is not None else "smg"
    first = f"{name} at {url}   workers {ready}/{len(snapshot.workers)} ready"
    if totals is None:
        return [Text(first, no_wrap=True)]
    first += f"   running {totals.running}   waiting {totals.waiting}"
    if rates is None:
        return [Text(first, no_wrap=True)]
    second = (
        f"requests/s {rates.requests:.1f}   failed/s {rates.failed:.1f}"
        f"   tokens/s {rates.completion_tokens:.0f} out, {rates.prompt_tokens:.0f} in"
    )
    if rates.cached_share is not None:
        second += f", {rates.cached_share:.0%} of them cached"
    if rates.first_token_s is not None:
        second += f"   TTFT p50 {_seconds(rates.first_token_s[0])} p99 {_seconds(rates.first_token_s[1])}"
    return [Text(first, no_wrap=True), Text(second, no_wrap=True)]


def _table(snapshot: Snapshot, rates: Rates | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("worker", overflow="fold")
    table.add_column("state")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    table.add_column("models", overflow="fold")
    for worker in snapshot.workers:
        known = rates.workers.get(worker.url) if rates is not None else None
        table.add_row(*_row(worker, known or WorkerRates()))
    return table


def _row(worker: WorkerNow, rates: WorkerRates) -> tuple[RenderableType, ...]:
    return (
        worker.url,
        Text(worker.state, style=_COLOURS.get(worker.state, "")),
        str(worker.inflight),
        str(worker.running),
        str(worker.waiting),
        f"{worker.kv_used / worker.kv_capacity:.0%}" if worker.kv_capacity else str(worker.kv_used),
        f"{worker.tokens_per_second:.0f}",
        _NONE if rates.steps is None else f"{rates.steps:.0f}",
        _NONE if rates.requests is None else f"{rates.requests:.1f}",
        " ".join(worker.models) or _NONE,
    )


def _seconds(value: float) -> str:
    if value == float("inf"):
        return "over an hour"
    return f"≤{value * 1000:g}ms" if value < 1 else f"≤{value:g}s"
