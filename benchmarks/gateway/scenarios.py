"""What is measured, and what counts as good: the table of loads and the table of gates.

A gate compares our figure with the original's of the same run. Gates and aims are those of the performance
budget (docs/architecture.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from benchmarks.gateway.prompts import Mode, PromptKind

Pace = Literal["stepped", "instant"]
Figure = Literal["gateway_cpu", "both_cpu", "first_text_p99", "idle", "memory"]

# 20 ms, but no multiple of the kernel's 4 ms tick: in step with it, every tick would fall on the same part of a
# step, and the split into user and kernel time (which ticks count) would be wrong.
STEP_S = 0.0203


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One load. `quick` replaces (requests, tokens) where a single short run is wanted."""

    key: str
    title: str
    mode: Mode
    prompt: PromptKind
    concurrency: int
    requests: int
    tokens: int
    quick: tuple[int, int]
    per: Literal["token", "request"]
    pace: Pace = "stepped"
    rate: float | None = None

    def size(self, *, is_quick: bool) -> tuple[int, int]:
        """Requests, and output tokens of each."""
        return self.quick if is_quick else (self.requests, self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One line of the verdict: a figure of a scenario, its bound and what we aim at."""

    title: str
    figure: Figure
    scenario: str | None
    bound: float  # of ours / original; of our own figure where is_ratio is false
    aim: float | None
    is_ratio: bool = True
    unit: str = "µs"


SCENARIOS = (
    Scenario(
        key="stream64",
        title="64 streams of 200 tokens",
        mode="stream",
        prompt="small",
        concurrency=64,
        requests=128,
        tokens=200,
        quick=(64, 100),
        per="token",
    ),
    Scenario(
        key="stream256",
        title="256 streams of 200 tokens",
        mode="stream",
        prompt="small",
        concurrency=256,
        requests=256,
        tokens=200,
        quick=(256, 60),
        per="token",
    ),
    Scenario(
        key="stream1",
        title="stream of 1 token, 220-token prompt never seen",
        mode="stream",
        prompt="small",
        concurrency=16,
        requests=1200,
        tokens=1,
        quick=(400, 1),
        per="request",
    ),
    Scenario(
        key="unary",
        title="unary, 8 tokens, 220-token prompt never seen",
        mode="unary",
        prompt="small",
        concurrency=32,
        requests=640,
        tokens=8,
        quick=(256, 8),
        per="request",
    ),
    Scenario(
        key="long_new",
        title="stream of 1 token, 10k-token prompt never seen",
        mode="stream",
        prompt="long_new",
        concurrency=8,
        requests=240,
        tokens=1,
        quick=(80, 1),
        per="request",
    ),
    Scenario(
        key="long_history",
        title="stream of 1 token, 10k-token history seen + a new turn",
        mode="stream",
        prompt="long_history",
        concurrency=8,
        requests=240,
        tokens=1,
        quick=(80, 1),
        per="request",
    ),
    Scenario(
        key="first_text",
        title="200 requests/s on an engine that answers at once",
        mode="stream",
        prompt="small",
        concurrency=32,
        requests=1000,
        tokens=1,
        quick=(300, 1),
        per="request",
        pace="instant",
        rate=200.0,
    ),
)

GATES = (
    Gate(
        title="streamed token, 64 streams, 20 ms steps",
        figure="gateway_cpu",
        scenario="stream64",
        bound=0.70,
        aim=0.55,
    ),
    Gate(
        title="streamed token, 256 streams, 20 ms steps",
        figure="gateway_cpu",
        scenario="stream256",
        bound=0.65,
        aim=0.45,
    ),
    Gate(
        title="whole request, stream of 1 token, small prompt never seen",
        figure="gateway_cpu",
        scenario="stream1",
        bound=0.75,
        aim=0.5,
    ),
    Gate(
        title="whole request, unary, 8 tokens, small prompt never seen",
        figure="gateway_cpu",
        scenario="unary",
        bound=0.85,
        aim=0.6,
    ),
    Gate(
        title="whole request, 10k-token prompt never seen",
        figure="gateway_cpu",
        scenario="long_new",
        bound=0.85,
        aim=0.6,
    ),
    Gate(
        title="whole request, 10k-token history seen + a new turn",
        figure="gateway_cpu",
        scenario="long_history",
        bound=0.45,
        aim=0.35,
    ),
    Gate(
        title="gateway + engine side, streamed token, 64 streams",
        figure="both_cpu",
        scenario="stream64",
        bound=0.45,
        aim=0.35,
    ),
    Gate(
        title="added time to first text, p99",
        figure="first_text_p99",
        scenario="first_text",
        bound=1.0,
        aim=None,
        unit="ms",
    ),
    Gate(
        title="idle gateway, share of one core",
        figure="idle",
        scenario=None,
        bound=1.0,
        aim=None,
        is_ratio=False,
        unit="%",
    ),
    Gate(
        title="gateway's memory after the runs",
        figure="memory",
        scenario=None,
        bound=120.0,
        aim=None,
        is_ratio=False,
        unit="MB",
    ),
)
