"""A worker on SGLang's gRPC protocol: one call per prompt, all of them on one connection and without tasks.

The protocol has no session: readiness is a description that was answered and health checks that pass, the load is
asked for, and a lost connection shows in every call on it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from smg.errors import UNIMPLEMENTED, EngineError, SmgError
from smg.workers.base import ProtocolMismatch
from smg.workers.connected import ConnectedWorker, ConnectionLost
from smg.workers.failures import lost_error
from smg.workers.http2.connecting import connect
from smg.workers.kv_blocks import KvBlocks
from smg.workers.kv_events import watch_kv_events
from smg.workers.sglang.aborts import Aborts
from smg.workers.sglang.cards import describe, load_of, max_running_of, waits_for_reasoning
from smg.workers.sglang.client import SglangClient
from smg.workers.sglang.jobs import Jobs
from smg.workers.sglang.names import RequestNames
from smg.workers.sglang.ranks import Ranks
from smg.workers.sglang.receiver import SGLANG, CallReceiver, Progress
from smg.workers.sglang.requests import generate_to_sglang, refuse_late_form
from smg.workers.sglang.scoring import classify, embed, score
from smg.workers.tokenizer_archive import save_archive
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

    from smg.workers.base import GenerateListener, ResultListener
    from smg.workers.http2.calls import Call
    from smg.workers.http2.connection import Connection
    from smg.workers.options import WorkerOptions
    from smg.workers.sglang.receiver import Wire
    from smg_proto.engine.v1 import work_pb2

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Running:
    """A call on its way, with one sequence or several."""

    client: SglangClient
    call: Call
    name: str
    receiver: CallReceiver
    is_streamed: bool
    sequences_left: int
    rank: int


class SglangWorker(ConnectedWorker):
    """One SGLang server."""

    protocol = "sglang_grpc"

    def __init__(self, worker_id: str, url: str, options: WorkerOptions) -> None:
        super().__init__(worker_id, url, options)
        self._sequences = itertools.count(1)
        self._names = RequestNames()
        self._client: SglangClient | None = None
        self._connections = itertools.count(1)
        # Closed by the server, with calls that may still end well.
        self._draining: list[Connection] = []
        self._running: dict[int, _Running] = {}
        self._streamed = 0
        self._jobs = Jobs(self._load_changed, self._outcome)
        self._aborts = Aborts(self._names)
        self._progress = Progress()
        self._waits_for_reasoning = True
        self._by_rank = Ranks()
        self._blocks = KvBlocks(options.cache_blocks)
        self._blocks_of = ""

    @property
    def ranks(self) -> int:
        """As many as the server tells, where they are to be used one by one."""
        return self._by_rank.count

    def rank_load(self, rank: int) -> card_pb2.Load:
        """As last polled."""
        return self._by_rank.load(rank)

    def rank_inflight_requests(self, rank: int) -> int:
        """Sequences of calls to one rank. Jobs go to any."""
        return self._by_rank.inflight[rank]

    @property
    def inflight_requests(self) -> int:
        """Calls and jobs."""
        return len(self._running) + len(self._jobs)

    def generate(self, request: work_pb2.Generate, listener: GenerateListener) -> int:
        """Submit a sequence.

        Raises:
            InvalidRequest: the protocol cannot say what is asked.
            EngineError: the same, where another worker may be able to.
        """
        return self._submit((request,), (listener,))[0]

    def generate_choices(
        self, requests: Sequence[work_pb2.Generate], listeners: Sequence[GenerateListener]
    ) -> list[int]:
        """Submit choices as one call: the server computes their prompt once."""
        if any(request.output_ids for request in requests):
            # What was delivered before differs from choice to choice, and so do the prompts that continue it.
            return super().generate_choices(requests, listeners)
        return self._submit(requests, listeners)

    def score(self, request: work_pb2.Score, listener: ResultListener) -> int:
        """Score label sets: several questions, one answer."""
        client = self._usable_client()
        sequence = request.sequence = next(self._sequences)
        name = self._names.own(request.request_id, sequence)
        work = partial(score, client, request, name, self._options.score_parallel)
        self._jobs.start(sequence, work, listener)
        return sequence

    def embed(self, request: work_pb2.Embed, listener: ResultListener) -> int:
        """Embed an input."""
        client = self._usable_client()
        sequence = request.sequence = next(self._sequences)
        name = self._names.own(request.request_id, sequence)
        self._jobs.start(sequence, partial(embed, client, request, name), listener)
        return sequence

    def classify(self, request: work_pb2.Classify, listener: ResultListener) -> int:
        """Classify an input."""
        client = self._usable_client()
        sequence = request.sequence = next(self._sequences)
        name = self._names.own(request.request_id, sequence)
        work = partial(classify, client, request, name, len(self._card().labels))
        self._jobs.start(sequence, work, listener)
        return sequence

    def abort(self, sequence: int) -> None:
        """Forget the listener. With the last one of a call, end the call and tell the engine.

        The protocol cannot stop one choice of several. A call that ends does not stop all servicers.
        """
        running = self._running.get(sequence)
        if running is None:
            self._jobs.cancel(sequence)
        else:
            running.receiver.abandon(sequence)
            self._forget(sequence)
            self.on_load_change()

    async def fetch_tokenizer(self, model: str, target: Path) -> None:
        """Download and unpack the archive."""
        del model  # a server has one model
        client = self._connected_client()
        await save_archive(client.tokenizer(), target, self._options)

    async def flush_cache(self) -> None:
        """Forget cached prefixes."""
        await self._connected_client().flush_cache()

    async def load_lora(self, name: str, path: str) -> None:
        """Load an adapter."""
        await self._connected_client().load_lora(name, path)
        await self._take_loras()

    async def unload_lora(self, name: str) -> None:
        """Forget an adapter."""
        await self._connected_client().unload_lora(name)
        await self._take_loras()

    async def start_profile(self, output_dir: str) -> None:
        """Record a profile."""
        await self._connected_client().start_profile(output_dir)

    async def stop_profile(self) -> None:
        """End the recording."""
        await self._connected_client().stop_profile()

    async def _take_loras(self) -> None:
        loras = await self._connected_client().loras()
        if self._description is not None:
            description = card_pb2.DescribeResponse()
            description.CopyFrom(self._description)
            del description.models[0].loras[:]
            description.models[0].loras.extend(loras)
            self._described(description)

    async def _serve_once(self) -> None:
        try:
            connection = await connect(self._address, self._options)
        except (OSError, TimeoutError) as fault:
            raise ConnectionLost(f"cannot connect: {fault or 'no answer in time'}") from fault
        try:
            client = self._client = self._new_client(connection)
            description = await self._describe(client)
            await self._check_health()
            self._opened(description)
            await self._serve_together(
                self._watch_end(connection),
                self._watch_load(client),
                self._watch_cache(client),
                self._aborts.run(client),
            )
        except asyncio.CancelledError:
            # Not every servicer stops what a closed connection leaves behind.
            self._give_up(lost_error())
            if self._client is not None and not connection.is_closed:
                await self._aborts.send_last(self._client)
            raise
        finally:
            self._is_open = False
            self._client = None
            if not connection.ending.done():
                connection.close()
            self._draining = [each for each in (*self._draining, connection) if not each.is_closed]

    async def _describe(self, client: SglangClient) -> card_pb2.DescribeResponse:
        instance_id = f"connection-{next(self._connections)}"
        try:
            description = await self._tell_of_itself(client, instance_id)
        except EngineError as error:
            if error.engine_code == UNIMPLEMENTED:
                raise ProtocolMismatch(f"the server does not speak {self.protocol}") from error
            raise ConnectionLost(f"cannot be described: {error.message}") from error
        self._by_rank.count = max(1, description.data_parallel_size) if self._options.is_dp_aware else 1
        return description

    async def _tell_of_itself(self, client: SglangClient, instance_id: str) -> card_pb2.DescribeResponse:
        """Ask the server all that is to be known of it. Args: instance_id stands in where it tells none."""
        model = await client.model_info()
        server = await client.server_info()
        loads = await client.loads()
        loras = await client.loras()
        description = describe(model, server, instance_id)
        description.models[0].loras.extend(loras)
        description.max_running = description.max_running or max_running_of(loads)
        self._take_loads(loads)
        self._waits_for_reasoning = waits_for_reasoning(server)
        return description

    async def _ask_health(self) -> str:
        why_not = await self._connected_client().health()
        if not why_not:
            # Servers check by computing a token.
            self._progress.steps += 1
        return why_not

    def _progress_seen(self) -> int:
        return self._progress.steps

    def _sequences_running(self) -> int:
        # A sequence that is not streamed is silent until its end, however well it is.
        return self._streamed

    def _give_up(self, error: SmgError) -> None:
        while self._running:
            sequence = next(iter(self._running))
            running = self._running[sequence]
            self._forget(sequence)
            running.receiver.give_up(sequence, error)
        self._jobs.fail_all(error)

    def _fail_lost(self, error: SmgError) -> None:
        """Nothing to do: calls hear of their connection's end by themselves, and some may yet end well."""

    async def _end_tasks(self) -> None:
        for connection in self._draining:
            connection.close()
        self._draining.clear()
        await self._jobs.wait_ended()

    async def _watch_end(self, connection: Connection) -> None:
        raise ConnectionLost(await asyncio.shield(connection.ending))

    async def _watch_load(self, client: SglangClient) -> None:
        interval_s = self._options.load_interval_s
        while interval_s:
            await asyncio.sleep(interval_s)
            try:
                self._take_loads(await client.loads())
            except EngineError as error:
                _log.debug("load of worker %s: %s", self.url, error.message)
            self.on_load_change()

    async def _watch_cache(self, client: SglangClient) -> None:
        """Follow the server's prefix cache, where somebody wants to know of it."""
        tell, description = self.on_cache_change, self._description
        if tell is None or description is None:
            return
        if self._blocks_of != description.instance_id:
            # Another run of the server, whose cache began empty.
            self._blocks_of = description.instance_id
            self._blocks.forget()
        path = f"{client.service}SubscribeKvEvents"
        await watch_kv_events(client.connection, path, self._blocks, tell, self._options)

    def _take_loads(self, loads: sglang_pb2.GetLoadsResponse) -> None:
        self._load = load_of(loads)
        if self._options.is_dp_aware:
            self._by_rank.take_loads(loads)

    def _submit(
        self, requests: Sequence[work_pb2.Generate], listeners: Sequence[GenerateListener]
    ) -> list[int]:
        client = self._usable_client()
        first = requests[0]
        for request in requests:
            request.sequence = next(self._sequences)
        name = self._names.take(first.request_id, first.sequence)
        try:
            message = self._message(first, name, len(requests))
        except SmgError:
            self._names.free(name)
            raise
        receiver = CallReceiver(requests, listeners, self._progress, self._ended, self._outcome, self._wire())
        call = client.generate(message, receiver, first.traceparent, first.tracestate)
        rank = first.data_parallel_rank
        self._by_rank.inflight[rank] += len(requests)
        running = _Running(client, call, name, receiver, first.stream, len(requests), rank)
        sequences = [request.sequence for request in requests]
        self._running.update(dict.fromkeys(sequences, running))
        if first.stream:
            self._streamed += len(sequences)
        self.on_load_change()
        return sequences

    def _new_client(self, connection: Connection) -> SglangClient:
        return SglangClient(connection, self._options)

    def _message(self, first: work_pb2.Generate, name: str, choices: int) -> Any:
        """The request of a call. Raises as `generate`."""
        if not self._waits_for_reasoning:
            refuse_late_form(first)
        return generate_to_sglang(first, name, self._card().defaults, choices)

    def _wire(self) -> Wire:
        return SGLANG

    def _ended(self, sequence: int) -> None:
        """A sequence's listener is about to hear the end."""
        if sequence in self._running:
            self._forget(sequence)
            self.on_load_change()

    def _forget(self, sequence: int) -> None:
        """A sequence is over. With the last one of its call, so is the call."""
        running = self._running.pop(sequence)
        self._streamed -= running.is_streamed
        self._by_rank.inflight[running.rank] -= 1
        running.sequences_left -= 1
        if running.sequences_left:
            return
        if running.receiver.is_settled:
            self._names.free(running.name)
        else:
            running.client.connection.cancel(running.call)
            self._aborts.add(running.name)

    def _load_changed(self) -> None:
        # The registry sets its hook after this worker was made.
        self.on_load_change()

    def _card(self) -> card_pb2.ModelCard:
        """The card of the one model that a server has."""
        description = self._description
        return description.models[0] if description else card_pb2.ModelCard()

    def _usable_client(self) -> SglangClient:
        self._refuse_unless_open()
        return self._connected_client()

    def _connected_client(self) -> SglangClient:
        if self._client is None:
            raise self._not_connected()
        return self._client
