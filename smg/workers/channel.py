"""Opens gRPC channels to workers, and turns what gRPC raises into the error tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc.aio

from smg.errors import DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE, EngineError

if TYPE_CHECKING:
    from smg.workers.options import WorkerOptions

RETRYABLE_CODES = frozenset((UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED))


def open_channel(target: str, options: WorkerOptions) -> grpc.aio.Channel:
    """Open a channel with connections of its own. The caller closes it."""
    return grpc.aio.insecure_channel(
        target,
        options=[
            # Shared subchannels would make a new channel wait out the backoff of an old one.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", options.max_message_bytes),
            ("grpc.max_send_message_length", -1),
            # Health checks come sooner while the peer lives: servers cut off clients that ping without need.
            ("grpc.keepalive_time_ms", int(max(options.keepalive_s, 2 * options.health_interval_s) * 1000)),
            ("grpc.keepalive_timeout_ms", int(options.keepalive_timeout_s * 1000)),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.lb_policy_name", "pick_first"),
            ("grpc.enable_http_proxy", 0),
        ],
    )


def code_number(code: grpc.StatusCode) -> int:
    """The google.rpc.Code of a grpc status."""
    number, _ = code.value
    return number


def words(error: grpc.aio.AioRpcError) -> str:
    """What a failed call says, in one line."""
    return f"{error.code().name}: {error.details()}" if error.details() else error.code().name


def engine_error(error: grpc.aio.AioRpcError, what: str = "") -> EngineError:
    """What a failed call means. The worker's own words are kept, after `what` when it is given."""
    code = code_number(error.code())
    message = error.details() or error.code().name
    return EngineError(
        f"{what}: {message}" if what else message,
        engine_code=code,
        can_retry=code in RETRYABLE_CODES,
    )


def lost_error(url: str, why: str) -> EngineError:
    """The error of every sequence that a lost worker leaves behind."""
    return EngineError(f"worker {url} was lost: {why}", engine_code=UNAVAILABLE, can_retry=True)
