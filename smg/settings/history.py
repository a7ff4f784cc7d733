"""Settings of the history: where responses and conversations are kept."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import SecretStr, model_validator

from smg.settings.fields import Section, setting

_MIB = 1024 * 1024


class HistorySettings(Section):
    """Where responses and conversations are kept, and for how long."""

    history_backend: Literal["none", "memory", "sqlite", "postgres", "redis"] = setting(
        "memory", "Where responses and conversations are kept. 'none' keeps nothing."
    )
    history_retention_days: int = setting(
        0, "Days after which responses and conversations are forgotten, in SQL databases. 0 keeps them.", ge=0
    )
    history_memory_max_responses: int = setting(
        10_000, "Most responses in memory; beyond that, those unused for longest go.", ge=1
    )
    history_memory_max_items: int = setting(
        100_000,
        "Most items of conversations in memory; beyond that, conversations unused for longest go.",
        ge=1,
    )
    history_memory_max_bytes: int = setting(
        256 * _MIB, "Most bytes of history in memory, about.", metavar="BYTES", ge=_MIB
    )
    history_memory_retention_secs: float = setting(
        0.0, "Seconds that history is kept in memory after it was last written. 0 sets no limit.", ge=0
    )
    history_max_chain: int = setting(
        1000, "Most earlier responses of a chain that a model is shown; of a longer one the newest.", ge=1
    )
    history_max_items: int = setting(
        5000, "Most items of a conversation that a model is shown; of a longer one the newest.", ge=1
    )
    max_background_responses: int = setting(
        0,
        "Responses with `background: true` that run or wait at a time. 0: background is accepted and ignored.",
        ge=0,
    )
    background_max_event_bytes: int = setting(
        8 * _MIB,
        "Most bytes of events kept of each streamed response in the background.",
        metavar="BYTES",
        ge=_MIB,
    )
    background_lease_secs: float = setting(
        30.0,
        "Seconds after which a response in the background has failed if its router has not been heard of in the store. "
        "Routers that share a store need clocks that differ by much less.",
        ge=1,
    )
    sqlite_path: str = setting("smg-history.db", "File of the SQLite database.", metavar="PATH", min_length=1)
    history_timeout_secs: float = setting(
        5.0, "Longest wait for the SQLite database while others write, in seconds.", gt=0
    )
    postgres_db_url: SecretStr = setting(
        SecretStr(""), "PostgreSQL database: postgresql://user:password@host:port/name.", metavar="URL"
    )
    postgres_pool_max: int = setting(16, "Most connections to PostgreSQL.", ge=1)
    postgres_op_timeout_secs: float = setting(
        5.0, "Longest time of one call to PostgreSQL, in seconds.", gt=0
    )
    redis_url: SecretStr = setting(
        SecretStr(""), "Redis or Valkey: redis://host:port/0, rediss://… or unix://….", metavar="URL"
    )
    redis_pool_max: int = setting(16, "Most connections to Redis.", ge=1)
    redis_op_timeout_secs: float = setting(5.0, "Longest time of one call to Redis, in seconds.", gt=0)
    redis_retention_days: int = setting(
        30, "Days after the last write that Redis keeps something. 0 keeps it.", ge=0
    )

    @model_validator(mode="after")
    def _has_an_address(self) -> Self:
        for backend, url in (("postgres", self.postgres_db_url), ("redis", self.redis_url)):
            if self.history_backend != backend:
                continue
            name = "postgres_db_url" if backend == "postgres" else "redis_url"
            schemes = (
                ("postgresql://", "postgres://")
                if backend == "postgres"
                else ("redis://", "rediss://", "unix://")
            )
            if not url.get_secret_value().startswith(schemes):
                raise ValueError(
                    f"history_backend {backend} needs {name} to begin with {' or '.join(schemes)}"
                )
        return self
