"""Bounds how long a sequence waits for its constraint or its images: neither work can be stopped, and others may wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicers.local.refusal import RESOURCE_EXHAUSTED, RefusalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from servicers.local.sequence import GenerateJob

MAX_COMPILE_S = 20.0
"""Less than what routers take for a standstill."""


def overdue(jobs: Iterable[GenerateJob], now_s: float) -> Iterator[tuple[GenerateJob, RefusalError]]:
    """Those that have waited too long, and what to tell them. A job's time begins when it is first seen here."""
    for job in jobs:
        if job.ready_by_s is None:
            job.ready_by_s = now_s + MAX_COMPILE_S
        if now_s < job.ready_by_s:
            continue
        if job.looking is not None and not job.looking.done():
            text = f"the images have waited {MAX_COMPILE_S:g} s to be looked at; try again"
            yield job, RefusalError(text, code=RESOURCE_EXHAUSTED, is_retryable=True)
        elif job.compiling is not None and job.compiling.running():
            text = f"the constraint takes more than {MAX_COMPILE_S:g} s to compile; use a smaller one"
            yield job, RefusalError(text)
        else:
            text = f"the constraint has waited {MAX_COMPILE_S:g} s for others to be compiled; try again"
            yield job, RefusalError(text, code=RESOURCE_EXHAUSTED, is_retryable=True)
