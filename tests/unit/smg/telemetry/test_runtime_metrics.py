"""RuntimeMetrics: the queue, the build, and how late the event loop is."""

import asyncio
import contextlib
import time

from prometheus_client import CollectorRegistry

from smg.pipelines.admission import Admission
from smg.telemetry import runtime_metrics
from smg.telemetry.runtime_metrics import RuntimeMetrics


async def test_the_queue_is_told_as_it_is():
    registry, admission = CollectorRegistry(), Admission(max_running=1)
    RuntimeMetrics(registry, "1.2.3", admission, 100)
    async with admission.permit():
        waiting = asyncio.ensure_future(admission.permit().__aenter__())
        await asyncio.sleep(0)
        told = [registry.get_sample_value(f"smg_admission_{name}") for name in ("running", "waiting")]
        assert told == [1, 1]
    await waiting
    admission.leave()
    assert registry.get_sample_value("smg_admission_running") == 0
    assert registry.get_sample_value("smg_admission_queue_size") == 100


def test_the_build_is_named():
    registry = CollectorRegistry()
    RuntimeMetrics(registry, "1.2.3", Admission(), 100)
    (family,) = (each for each in registry.collect() if each.name == "smg_build_info")
    assert family.samples[0].labels["version"] == "1.2.3"
    assert not [each for each in registry.collect() if "trace" in each.name], "no traces, no metrics of them"


async def test_a_loop_that_is_held_up_is_seen_to_be_late(monkeypatch):
    monkeypatch.setattr(runtime_metrics, "LOOK_S", 0.001)
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry, "0", Admission(), 100)
    task = asyncio.ensure_future(metrics.lag.watch())
    await asyncio.sleep(0)
    time.sleep(0.06)  # noqa: ASYNC251 - what is to be noticed
    while not registry.get_sample_value("smg_event_loop_lag_seconds_count"):  # noqa: ASYNC110 - no event for it
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert registry.get_sample_value("smg_event_loop_lag_seconds_sum") > 0.05
