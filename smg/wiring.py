"""What the settings mean to each part: settings in, options of the parts out."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from smg.pipelines.admission import Admission, RateLimit
from smg.pipelines.engine_call import RetryOptions
from smg.prompt.builder import PromptBuilder
from smg.workers.breaker import BreakerOptions
from smg.workers.options import WorkerOptions
from smg.workers.overload import OverloadLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.settings import (
        AdmissionSettings,
        BreakerSettings,
        ModelSettings,
        RetrySettings,
        RouterSettings,
    )
    from smg.tls.worker import WorkerTls

# Policies that go by the loads of workers.
LOAD_POLICIES = ("bucket", "cache_aware", "least_load", "power_of_two", "prefix_hash")
# Objects between two looks of the cycle collector. Python's 700 makes it look several times per request and find nothing.
YOUNG_OBJECTS = 50_000
REQUESTS_PER_CORE = 1024
LEAST_REQUESTS = 4096


def worker_options(settings: RouterSettings, tls: WorkerTls | None = None) -> WorkerOptions:
    """How workers are connected to and watched."""
    workers, fleet = settings.workers, settings.fleet
    polls_loads = not fleet.disable_load_monitoring or settings.routing.policy in LOAD_POLICIES
    return WorkerOptions(
        connect_timeout_s=workers.worker_connect_timeout_secs,
        health_interval_s=workers.health_check_interval_secs,
        health_timeout_s=workers.health_check_timeout_secs,
        health_failures=workers.health_failure_threshold,
        health_successes=workers.health_success_threshold,
        wedge_s=workers.worker_wedge_secs,
        silence_s=workers.worker_silence_secs,
        load_interval_s=fleet.load_monitor_interval if polls_loads else 0,
        is_health_checked=not fleet.disable_health_check,
        is_dp_aware=fleet.dp_aware,
        max_workers=fleet.max_workers,
        drain_s=fleet.worker_drain_timeout_secs,
        tls=tls,
    )


def overload_limits(settings: RouterSettings) -> OverloadLimits:
    """When a worker gets no more."""
    overload = settings.overload
    if overload.disable_worker_overload_protection:
        return OverloadLimits()
    return OverloadLimits(
        overload.worker_overload_waiting_requests,
        overload.worker_overload_token_usage,
        overload.worker_overload_shed,
        math.ceil(settings.fleet.load_monitor_interval),
    )


def breaker_options(settings: BreakerSettings) -> BreakerOptions:
    """When workers that fail are left alone."""
    return BreakerOptions(
        failures=0 if settings.disable_circuit_breaker else settings.cb_failure_threshold,
        successes=settings.cb_success_threshold,
        open_s=settings.cb_timeout_duration_secs,
        window_s=settings.cb_window_duration_secs,
    )


def retry_options(settings: RetrySettings) -> RetryOptions:
    """How requests are tried again."""
    return RetryOptions(
        max_attempts=1 if settings.disable_retries else settings.retry_max_retries,
        initial_backoff_s=settings.retry_initial_backoff_ms / 1000,
        max_backoff_s=settings.retry_max_backoff_ms / 1000,
        multiplier=settings.retry_backoff_multiplier,
        jitter=settings.retry_jitter_factor,
    )


def admission_of(settings: AdmissionSettings, request_timeout_s: float) -> Admission:
    """How many requests run and wait."""
    limit = settings.max_concurrent_requests
    if limit < 0:
        limit = max(LEAST_REQUESTS, REQUESTS_PER_CORE * (os.cpu_count() or 1))
    per_s = settings.rate_limit_tokens_per_second
    rate = RateLimit(per_s, limit or per_s) if per_s else None
    return Admission(limit, settings.queue_size, settings.queue_timeout_secs, rate, request_timeout_s)


def tokenizer_dir(settings: ModelSettings) -> Path | None:
    """The operator's own tokenizer directory, if one is named."""
    path = settings.tokenizer_path or settings.model_path
    if path is None:
        return None
    directory = Path(path)
    return directory.parent if directory.is_file() else directory


def cache_dir(settings: ModelSettings) -> Path | None:
    """Where tokenizers from workers are kept; None for a temporary directory."""
    return Path(settings.tokenizer_cache_dir) if settings.tokenizer_cache_dir else None


def load_builder(settings: ModelSettings) -> Callable[[Path], PromptBuilder]:
    """How a prompt builder is made from a tokenizer directory."""
    template = Path(settings.chat_template).read_text(encoding="utf-8") if settings.chat_template else None

    def load(directory: Path) -> PromptBuilder:
        builder = PromptBuilder.load(
            directory, chat_template=template, cache_bytes=settings.tokenizer_cache_bytes
        )
        # Made on first use; here, so that no request waits for it on the event loop.
        _ = builder.tokenizer.fragments
        return_freed_memory()
        return builder

    return load


def settle_memory() -> None:
    """What lives now lives as long as the process: the collector need not look at it again."""
    gc.collect()
    return_freed_memory()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def return_freed_memory() -> None:
    """Give what reading a tokenizer has left behind back to the system: about 30 MB for 50,000 tokens.

    glibc keeps it otherwise. Other C libraries have no such call, and need none.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
