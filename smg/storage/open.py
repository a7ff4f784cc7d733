"""THE table of stores. One that needs a package of the extra `history` imports it when it is chosen."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from smg.errors import MissingPackage
from smg.storage.memory import MemoryBounds, MemoryStore
from smg.storage.none import NoStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from smg.settings.history import HistorySettings
    from smg.storage.base import HistoryStore


def _memory(settings: HistorySettings) -> HistoryStore:
    return MemoryStore(
        MemoryBounds(
            responses=settings.history_memory_max_responses,
            items=settings.history_memory_max_items,
            size_bytes=settings.history_memory_max_bytes,
            age_s=settings.history_memory_retention_secs,
        )
    )


def _sqlite(settings: HistorySettings) -> HistoryStore:
    from smg.storage.sql import SqlStore

    return SqlStore(f"sqlite+aiosqlite:///{settings.sqlite_path}", timeout_s=settings.history_timeout_secs)


def _postgres(settings: HistorySettings) -> HistoryStore:
    from smg.storage.sql import SqlStore

    scheme, mark, rest = settings.postgres_db_url.get_secret_value().partition("://")
    url = f"postgresql+asyncpg{mark}{rest}" if scheme in ("postgres", "postgresql") else scheme + mark + rest
    return SqlStore(url, timeout_s=settings.postgres_op_timeout_secs, pool_size=settings.postgres_pool_max)


def _redis(settings: HistorySettings) -> HistoryStore:
    from smg.storage.redis import RedisStore

    return RedisStore(
        settings.redis_url.get_secret_value(),
        timeout_s=settings.redis_op_timeout_secs,
        pool_size=settings.redis_pool_max,
        retention_days=settings.redis_retention_days,
    )


_STORES: Mapping[str, Callable[[HistorySettings], HistoryStore]] = MappingProxyType(
    {
        "none": lambda _: NoStore(),
        "memory": _memory,
        "sqlite": _sqlite,
        "postgres": _postgres,
        "redis": _redis,
    }
)


def make_store(settings: HistorySettings) -> HistoryStore:
    """The store that the settings name, not open yet.

    Raises:
        MissingPackage: a package of the extra `history` is not installed; says how to install it.
    """
    try:
        return _STORES[settings.history_backend](settings)
    except ImportError as error:
        raise MissingPackage(
            f"--history-backend {settings.history_backend} needs the package {error.name}:"
            " pip install 'smg[history]'"
        ) from error
