"""What responses are made with, and who they are told to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from smg.mcp.config import ConfiguredServers
    from smg.mcp.pool import SessionPool
    from smg.pipelines.admission import Admission
    from smg.pipelines.catalog import ModelCatalog
    from smg.pipelines.chat import ChatPipeline
    from smg.pipelines.response_history import ResponseHistory
    from smg.responses.events import Outlet
    from smg.storage.base import HistoryStore


class ResponseFront(Protocol):
    """Who asked: what is told of the response while it comes about."""

    @property
    def outlet(self) -> Outlet | None:
        """Where events go; None where only the whole response is wanted."""
        ...

    def begin(self) -> None:
        """The first event of the model is here. What fails before this is raised instead."""
        ...


@dataclass(frozen=True, slots=True)
class ResponseParts:
    """What responses are made with.

    Attributes:
        turns: answers one turn.
        admission: bounds how many run; those in the background take their place when they begin.
        catalog: the models.
        history: reads what was said before.
        store: keeps what has ended, and what runs in the background.
        sessions: with the servers of tools.
        servers: that the operator has named.
        lease_s: time for which a router vouches for a response that runs in the background.
        on_write: told how long each write to the store took, in seconds, and whether it was kept.
    """

    turns: ChatPipeline
    admission: Admission
    catalog: ModelCatalog
    history: ResponseHistory
    store: HistoryStore
    sessions: SessionPool
    servers: ConfiguredServers
    lease_s: float
    on_write: Callable[[float, bool], None]
