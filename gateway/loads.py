"""The loads of all workers, as tools for the original gateway read them: one row a worker or rank, and sums."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.workers.registered import RegisteredWorker
    from smg_proto.engine.v1 import card_pb2


def loads_json(workers: Sequence[RegisteredWorker]) -> dict[str, Any]:
    """GET /get_loads. `workers` tells this router's own view, the rest what the engines say."""
    rows = [row for worker in workers for row in _rows(worker)]
    count = len(rows) or 1
    running = sum(row["num_running_reqs"] for row in rows)
    waiting = sum(row["num_waiting_reqs"] for row in rows)
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": f"smg-{version('smg')}",
        "dp_rank_count": len(rows),
        "loads": rows,
        "aggregate": {
            "total_running_reqs": running,
            "total_waiting_reqs": waiting,
            "total_reqs": running + waiting,
            "avg_token_usage": sum(row["token_usage"] for row in rows) / count,
            "avg_throughput": sum(row["gen_throughput"] for row in rows) / count,
        },
        "workers": [
            {
                "worker": worker.url,
                "worker_id": worker.id,
                "load": worker.inflight_requests,
                "running": worker.load.running,
                "waiting": worker.load.waiting,
                "steps_per_second": worker.steps_per_second,
                "is_healthy": worker.is_ready,
            }
            for worker in workers
        ],
    }


def _rows(worker: RegisteredWorker) -> list[dict[str, Any]]:
    connected = worker.worker
    if connected is None or not connected.is_connected:
        return []
    if connected.ranks == 1:
        return [_row(worker.url, 0, connected.load)]
    return [_row(worker.url, rank, connected.rank_load(rank)) for rank in range(connected.ranks)]


def _row(url: str, rank: int, load: card_pb2.Load) -> dict[str, Any]:
    capacity = load.kv_capacity_tokens
    return {
        "worker": url,
        "worker_type": "regular",
        "dp_rank": rank,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.waiting,
        "num_waiting_uncached_tokens": load.waiting_uncached_tokens,
        "num_total_reqs": load.running + load.waiting,
        "num_used_tokens": load.kv_used_tokens,
        "max_total_num_tokens": capacity,
        "token_usage": load.kv_used_tokens / capacity if capacity else 0.0,
        "gen_throughput": load.tokens_per_second,
    }
