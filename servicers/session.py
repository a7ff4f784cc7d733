"""The gRPC face of an engine: smg.engine.v1.EngineService over any servicers.base.Engine.

A session is a lease: whatever ends it, the engine drops what was started on it. Messages of a session cross gRPC as
bytes, so that an event is serialized once and its size is known before it is queued.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from servicers.base import EngineFault, NotServed
from servicers.models import models_by_name
from servicers.router_session import RouterSession, SessionEnd
from servicers.tokenizer_archive import pack_tokenizer
from smg_proto.engine.v1 import card_pb2, engine_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence

    from servicers.base import Engine
    from servicers.limits import SessionLimits
    from servicers.models import ServedModel

    # What grpc.aio hands to a method; its message types are not checked.
    Context = grpc.aio.ServicerContext[Any, Any]

# The stubs of grpcio leave the types of method handlers open.
_grpc: Any = grpc

SERVICE = "smg.engine.v1.EngineService"

_LEAST_GRACE_S = 0.05

_log = logging.getLogger(__name__)


class EngineServicer:
    """Serves one engine. Answers UNAVAILABLE until `open` is called and after `close`."""

    def __init__(self, engine: Engine, limits: SessionLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._instance_id = secrets.token_hex(8)
        self._models: dict[str, ServedModel] = {}
        self._fingerprints: Mapping[str, str] = {}
        self._sessions: set[RouterSession] = set()
        self._closed_because = "the model is loading"
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        unary, stream = _grpc.unary_unary_rpc_method_handler, _grpc.unary_stream_rpc_method_handler
        methods = {
            # No codec: the session's own code parses and serializes.
            "Session": _grpc.stream_stream_rpc_method_handler(self.session),
            "Describe": unary(self.describe, card_pb2.DescribeRequest.FromString, _bytes),
            "GetTokenizer": stream(self.get_tokenizer, card_pb2.GetTokenizerRequest.FromString, _bytes),
            "GetLoad": unary(self.get_load, card_pb2.GetLoadRequest.FromString, _bytes),
            "FlushCache": unary(self.flush_cache, card_pb2.FlushCacheRequest.FromString, _bytes),
            "LoadLora": unary(self.load_lora, card_pb2.LoadLoraRequest.FromString, _bytes),
            "UnloadLora": unary(self.unload_lora, card_pb2.UnloadLoraRequest.FromString, _bytes),
            "StartProfile": unary(self.start_profile, card_pb2.StartProfileRequest.FromString, _bytes),
            "StopProfile": unary(self.stop_profile, card_pb2.StopProfileRequest.FromString, _bytes),
        }
        handler = _grpc.method_handlers_generic_handler(SERVICE, methods)
        cast("Any", server).add_generic_rpc_handlers((handler,))

    async def open(self) -> None:
        """Take work from now on. The engine has started."""
        description = self._engine.describe()
        self._models.update(models_by_name(description))
        self._fingerprints = await asyncio.to_thread(self._compute_fingerprints, list(self._models))
        self._closed_because = ""

    async def drain(self, grace_s: float) -> None:
        """Take no new work, wait for what runs, and end every session with UNAVAILABLE.

        Args:
            grace_s: longest wait; what runs after it is cut.
        """
        self._closed_because = "the engine is shutting down"
        for session in list(self._sessions):
            session.refuse_new_work()
        try:
            # The turn that an idle session needs to end is given even without grace.
            await asyncio.wait_for(self._all_gone.wait(), max(grace_s, _LEAST_GRACE_S))
        except TimeoutError:
            _log.warning("%d sessions are cut after %g s of grace", len(self._sessions), grace_s)
            self.cut()

    def cut(self) -> None:
        """End every session now."""
        for session in list(self._sessions):
            session.end(SessionEnd(grpc.StatusCode.UNAVAILABLE, self._closed_because))

    async def push_loads(self) -> None:
        """Tell every session the load at each interval. Runs until cancelled."""
        while True:
            await asyncio.sleep(self._limits.load_interval_s)
            if self._sessions:
                load = self._engine.load()
                for session in self._sessions:
                    session.push_load(load)

    async def session(self, _: object, context: Context) -> None:
        """Session of the contract."""
        await self._check_open(context)
        if len(self._sessions) >= self._limits.max_sessions:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{len(self._sessions)} sessions are open, the most allowed",
            )
        session = RouterSession(self._engine, self._models, self._limits)
        self._sessions.add(session)
        self._all_gone.clear()
        try:
            session.greet(self._instance_id, self._engine.describe().max_running)
            await _converse(session, context)
        finally:
            session.end(SessionEnd(grpc.StatusCode.CANCELLED))
            self._engine.close(session)
            self._sessions.discard(session)
            if not self._sessions:
                self._all_gone.set()
        end = session.how_it_ended
        if end is not None and end.code is not grpc.StatusCode.OK:
            await context.abort(end.code, end.details)

    async def describe(self, _: card_pb2.DescribeRequest, context: Context) -> card_pb2.DescribeResponse:
        """Describe of the contract."""
        await self._check_open(context)
        description = card_pb2.DescribeResponse()
        description.CopyFrom(self._engine.describe())
        description.instance_id = self._instance_id
        for card in description.models:
            card.tokenizer_sha256 = self._fingerprints.get(card.id, "")
        return description

    async def get_tokenizer(
        self, request: card_pb2.GetTokenizerRequest, context: Context
    ) -> AsyncIterator[card_pb2.GetTokenizerResponse]:
        """GetTokenizer of the contract."""
        await self._check_open(context)
        directory = self._engine.tokenizer_dir(request.model)
        if directory is None:
            served = ", ".join(filter(None, self._models))
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no tokenizer for model {request.model!r}; served: {served}"
            )
        # The context has raised; the checker cannot know.
        assert directory is not None  # noqa: S101
        try:
            archive = await asyncio.to_thread(pack_tokenizer, directory)
        except OSError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the tokenizer cannot be read: {error}")
        pieces = list(archive.pieces())
        for piece in pieces[:-1]:
            yield card_pb2.GetTokenizerResponse(data=piece)
        yield card_pb2.GetTokenizerResponse(data=pieces[-1], sha256=archive.sha256)

    async def get_load(self, _: card_pb2.GetLoadRequest, context: Context) -> card_pb2.GetLoadResponse:
        """GetLoad of the contract."""
        await self._check_open(context)
        return card_pb2.GetLoadResponse(load=self._engine.load())

    async def flush_cache(
        self, _: card_pb2.FlushCacheRequest, context: Context
    ) -> card_pb2.FlushCacheResponse:
        """FlushCache of the contract."""
        await self._check_open(context)
        flushed = self._engine.flush_cache()
        return card_pb2.FlushCacheResponse(
            flushed_tokens=flushed if isinstance(flushed, int) else await flushed
        )

    async def load_lora(
        self, request: card_pb2.LoadLoraRequest, context: Context
    ) -> card_pb2.LoadLoraResponse:
        """LoadLora of the contract."""
        if not request.name or not request.path:
            empty = "path" if request.name else "name"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{empty} is empty; allowed: some text")
        await self._do(self._engine.load_lora(request.name, request.path), context)
        return card_pb2.LoadLoraResponse(loras=self._take_loras())

    async def unload_lora(
        self, request: card_pb2.UnloadLoraRequest, context: Context
    ) -> card_pb2.UnloadLoraResponse:
        """UnloadLora of the contract."""
        await self._do(self._engine.unload_lora(request.name), context)
        return card_pb2.UnloadLoraResponse(loras=self._take_loras())

    async def start_profile(
        self, request: card_pb2.StartProfileRequest, context: Context
    ) -> card_pb2.StartProfileResponse:
        """StartProfile of the contract."""
        await self._do(self._engine.start_profile(request.output_dir), context)
        return card_pb2.StartProfileResponse()

    async def stop_profile(
        self, _: card_pb2.StopProfileRequest, context: Context
    ) -> card_pb2.StopProfileResponse:
        """StopProfile of the contract."""
        await self._do(self._engine.stop_profile(), context)
        return card_pb2.StopProfileResponse()

    async def _do(self, work: Coroutine[Any, Any, None], context: Context) -> None:
        """Do what an operator asks of the engine, or say why not."""
        try:
            await self._check_open(context)
            await work
        except NotServed as refusal:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, str(refusal))
        except EngineFault as refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        finally:
            work.close()

    def _take_loras(self) -> Sequence[str]:
        """Let the sessions know what adapters there are now."""
        # The same mapping, for the sessions hold it.
        self._models.update(models_by_name(self._engine.describe()))
        return self._engine.describe().models[0].loras

    async def _check_open(self, context: Context) -> None:
        if self._closed_because:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._closed_because)

    def _compute_fingerprints(self, models: list[str]) -> dict[str, str]:
        """Fingerprint of each model's tokenizer, where it has one. Blocks."""
        found: dict[str, str] = {}
        by_directory: dict[object, str] = {}
        for model in filter(None, models):
            directory = self._engine.tokenizer_dir(model)
            if directory is None:
                continue
            if directory not in by_directory:
                try:
                    by_directory[directory] = pack_tokenizer(directory).sha256
                except OSError as error:
                    _log.warning("model %s has no tokenizer to give: %s", model, error)
                    continue
            found[model] = by_directory[directory]
        return found


async def _converse(session: RouterSession, context: Context) -> None:
    """Read and write until the session ends."""
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(_read(session, context))
        sender = tasks.create_task(_send(session, context))
        session.on_overflow = sender.cancel
        await asyncio.wait([sender])
        reader.cancel()


async def _send(session: RouterSession, context: Context) -> None:
    try:
        await session.send(context.write)
    except grpc.aio.BaseError:
        # How gRPC says that the call is over.
        session.end(SessionEnd(grpc.StatusCode.CANCELLED, "the router has gone"))


async def _read(session: RouterSession, context: Context) -> None:
    # What is not bytes is the end of the router's side.
    while isinstance(data := await context.read(), bytes):
        try:
            request = engine_pb2.SessionRequest.FromString(data)
        except DecodeError as fault:
            session.end(SessionEnd(grpc.StatusCode.INVALID_ARGUMENT, f"not a SessionRequest: {fault}"))
            return
        session.take(request)
    session.no_more_requests()


def _bytes(message: Any) -> bytes:
    return message.SerializeToString()
