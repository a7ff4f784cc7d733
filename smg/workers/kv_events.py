"""Subscribes to the prefix cache of a server on SGLang's or vLLM's protocol, again and again, from where it was."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from smg_grpc_proto.generated import common_pb2

from smg.errors import UNIMPLEMENTED
from smg.workers.backoff import Backoff
from smg.workers.kv_blocks import KvGap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from smg.workers.http2.connection import Connection
    from smg.workers.http2.headers import Status
    from smg.workers.kv_blocks import KvBlocks
    from smg.workers.options import WorkerOptions
    from smg_proto.engine.v1 import card_pb2

    Tell = Callable[[Iterable[card_pb2.CacheEvent]], None]

# google.rpc.Code of servers that cannot give what was asked for, or have lost something on the way.
_OUT_OF_RANGE, _DATA_LOSS = 11, 15

_log = logging.getLogger(__name__)


async def watch_kv_events(
    connection: Connection, path: str, blocks: KvBlocks, tell: Tell, options: WorkerOptions
) -> None:
    """Follow the events until the server says that it has none, or until cancelled.

    Args:
        connection: to the server.
        path: of its SubscribeKvEvents.
        blocks: what is known; kept over connections, so that a new one goes on where the last ended.
        tell: told of every change.
        options: pauses between subscriptions.
    """
    backoff = Backoff(options)
    while True:
        subscription = _Subscription(blocks, tell)
        request = common_pb2.SubscribeKvEventsRequest(start_sequence_number=blocks.resume_at)
        call = connection.call(path, request.SerializeToString(), subscription)
        try:
            why, code = await subscription.ended
        finally:
            connection.cancel(call)
        if code == UNIMPLEMENTED:
            return
        _log.debug("events of the prefix cache ended: %s", why)
        if subscription.has_gap or code in (_OUT_OF_RANGE, _DATA_LOSS):
            tell([blocks.forget()])
        if subscription.heard:
            backoff.reset()
        await asyncio.sleep(backoff.next_s())


class _Subscription:
    """A Receiver that takes batches as they come."""

    def __init__(self, blocks: KvBlocks, tell: Tell) -> None:
        self._blocks = blocks
        self._tell = tell
        self.ended: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        self.has_gap = False
        self.heard = False

    def on_messages(self, messages: Sequence[bytes]) -> None:
        if self.ended.done():
            return
        self.heard = True
        try:
            for message in messages:
                changes = self._blocks.take(common_pb2.KvEventBatch.FromString(message))
                if changes:
                    self._tell(changes)
        except KvGap as gap:
            self.has_gap = True
            self.ended.set_result((str(gap), 0))
        except Exception as error:  # noqa: BLE001 - what a server sends must not break the connection
            _log.error("events of a prefix cache could not be read", exc_info=error)
            self.has_gap = True
            self.ended.set_result((str(error), 0))

    def on_end(self, status: Status) -> None:
        if not self.ended.done():
            self.ended.set_result((status.message, status.code))
