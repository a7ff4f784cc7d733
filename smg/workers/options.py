"""Every bound that a connection to a worker keeps, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smg.tls.worker import WorkerTls

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How workers are connected to, watched and given up.

    Attributes:
        connect_timeout_s: longest wait for a connection, for the description, and for the session to open.
        backoff_min_s: pause before the first reconnect; doubles with each further failure.
        backoff_max_s: longest pause between reconnects.
        hurried_pause_s: longest pause between reconnects while requests find no worker.
        backoff_jitter: share of a pause that is random, 0 to 1, so that routers do not return all at once.
        keepalive_s: silence on a connection after which its peer is asked for a sign of life.
        keepalive_timeout_s: longest wait for that sign; then the connection is lost.
        max_message_bytes: longest message that is accepted from a worker.
        write_batch_bytes: commands gathered beyond this go in the next message, so that a message stays short;
            one command alone may be longer.
        read_pause_s: time to let reads gather on a connection with many calls (SGLang's protocol); 0 reads at once.
        score_parallel: most prompts of one score request that are computed at a time (SGLang's protocol).
        job_timeout_s: longest time one prompt of a score, or one embedding, may take (SGLang's protocol), and longest
            time that an adapter takes to load, or a profile to be written.
        health_interval_s: pause between health checks.
        health_timeout_s: longest wait for the answer to a health check.
        health_failures: failed checks in a row after which a worker takes no new work.
        health_successes: good checks in a row after which an unhealthy worker is used again.
        wedge_s: time without a step, while sequences run, after which a worker counts as wedged.
        silence_s: time in which a session's engine says nothing, while sequences run, after which it counts as lost.
        tokenizer_archive_bytes: longest tokenizer archive, and longest sum of its unpacked files.
        tokenizer_archive_files: most files in a tokenizer archive.
        tokenizer_timeout_s: longest time a tokenizer download may take.
        tls: for workers at grpcs:// addresses; None where there are none.
        load_interval_s: pause between polls of the load where it is not pushed; 0 polls none.
        cache_blocks: most blocks of a worker's prefix cache that are kept to read its events by (SGLang's and vLLM's).
        is_health_checked: health services are asked; connection and steps are watched in any case.
        is_dp_aware: data-parallel ranks are used one by one.
        max_workers: most workers that are registered.
        drain_s: longest time that running work of a worker which is to go gets to end.
    """

    connect_timeout_s: float = 5.0
    backoff_min_s: float = 0.1
    backoff_max_s: float = 5.0
    hurried_pause_s: float = 0.25
    backoff_jitter: float = 0.2
    keepalive_s: float = 20.0
    keepalive_timeout_s: float = 10.0
    max_message_bytes: int = 256 * MIB
    write_batch_bytes: int = MIB
    read_pause_s: float = 0.001
    score_parallel: int = 32
    job_timeout_s: float = 600.0
    health_interval_s: float = 10.0
    health_timeout_s: float = 5.0
    health_failures: int = 3
    health_successes: int = 2
    wedge_s: float = 30.0
    silence_s: float = 10.0
    tokenizer_archive_bytes: int = 512 * MIB
    tokenizer_archive_files: int = 256
    tokenizer_timeout_s: float = 120.0
    tls: WorkerTls | None = None
    load_interval_s: float = 10.0
    cache_blocks: int = 65_536
    is_health_checked: bool = True
    is_dp_aware: bool = False
    max_workers: int = 4096
    drain_s: float = 180.0
