"""The gRPC face: sglang.grpc.scheduler.SglangScheduler over any servicers.base.Engine."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio
from smg_grpc_proto.generated import common_pb2
from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2
from smg_grpc_proto.generated import sglang_scheduler_pb2_grpc as sglang_grpc

from servicers.base import EngineFault, NotServed
from servicers.compat.answers import ChoiceAnswer, scored_answer
from servicers.compat.infos import loads, model_info, server_info
from servicers.compat.kv_events import CacheSubscription
from servicers.compat.requests import CannotDo, generations, is_scoring, scoring
from servicers.compat.session import CallSession
from servicers.models import models_by_name
from servicers.token_bytes import ids_to_bytes
from servicers.tokenizer_archive import pack_tokenizer
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from servicers.base import Engine
    from servicers.compat.session import Call
    from servicers.limits import SessionLimits
    from servicers.models import ServedModel

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = "sglang.grpc.scheduler.SglangScheduler"

_CODES = {code.value[0]: code for code in cast("Any", grpc).StatusCode}


class SglangSchedulerServicer(sglang_grpc.SglangSchedulerServicer):
    """Serves one engine. Answers UNAVAILABLE until `open` is called and after `drain`."""

    def __init__(self, engine: Engine, limits: SessionLimits) -> None:
        self._engine = engine
        self._models: dict[str, ServedModel] = {}
        self._session = CallSession(engine, self._models, limits)
        self._limits = limits
        self._calls: dict[str, Call] = {}
        self._subscriptions: set[CacheSubscription] = set()
        self._closed_because = "the model is loading"
        self._started_at = time.time()  # noqa: TID251 -- told to clients as a date

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        cast("Any", sglang_grpc).add_SglangSchedulerServicer_to_server(self, server)

    def open(self) -> None:
        """Take work from now on. The engine has started."""
        self._take_models()
        self._closed_because = ""

    async def drain(self, grace_s: float) -> None:
        """Take no new work, and wait for what runs."""
        self._closed_because = "the engine is shutting down"
        await self._session.drain(grace_s)

    def close(self) -> None:
        """Everything has ended, or is to end now."""
        self._session.cut()
        self._engine.close(self._session)

    def cut(self) -> None:
        """End every call now."""
        self._session.cut()

    async def Generate(  # noqa: N802 -- as the protocol has it
        self, request: sglang_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[sglang_pb2.GenerateResponse]:
        """Generate, or score."""
        await self._check_open(context)
        try:
            work = [scoring(request)] if is_scoring(request) else generations(request)
        except CannotDo as refusal:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refusal))
            raise
        answers = [ChoiceAnswer(request, index) for index in range(len(work))]
        call = self._session.submit(work)
        name = request.request_id
        self._calls[name] = call
        try:
            while parts := await call.take():
                failed: work_pb2.Failed | None = None
                for part in parts:
                    if isinstance(part.end, work_pb2.Failed):
                        # A call has one status: what the other choices have got is told before.
                        failed = failed or part.end
                    elif part.started is not None:
                        answers[part.choice].start(part.started)
                    elif part.end is None:
                        yield answers[part.choice].chunk(part)
                    elif isinstance(part.end, work_pb2.Scored):
                        yield scored_answer(request, part.end)
                    elif isinstance(part.end, work_pb2.Finished):
                        yield answers[part.choice].complete(part.end)
                if failed is not None:
                    await _fail(failed, context)
        finally:
            if self._calls.get(name) is call:
                del self._calls[name]
            self._session.abort(call)

    async def Embed(  # noqa: N802
        self, request: sglang_pb2.EmbedRequest, context: Context
    ) -> sglang_pb2.EmbedResponse:
        """Embed, or classify where that is what the model does."""
        await self._check_open(context)
        ids = ids_to_bytes(request.tokenized.input_ids)
        can = self._models[""].capabilities
        work = (
            work_pb2.Embed(input_ids=ids)
            if can.embed or not can.classify
            else work_pb2.Classify(input_ids=ids)
        )
        call = self._session.submit([work])
        try:
            end = (await call.take())[-1].end
        finally:
            self._session.abort(call)
        if isinstance(end, work_pb2.Failed):
            await _fail(end, context)
        values = end.values if isinstance(end, work_pb2.Embedded) else cast("work_pb2.Classified", end).logits
        return sglang_pb2.EmbedResponse(
            embedding=values, embedding_dim=len(values), prompt_tokens=len(request.tokenized.input_ids)
        )

    async def HealthCheck(  # noqa: N802
        self, request: sglang_pb2.HealthCheckRequest, context: Context
    ) -> sglang_pb2.HealthCheckResponse:
        """Whether it takes work."""
        del request, context
        return sglang_pb2.HealthCheckResponse(
            healthy=not self._closed_because, message=self._closed_because or "serving"
        )

    async def Abort(  # noqa: N802
        self, request: sglang_pb2.AbortRequest, context: Context
    ) -> sglang_pb2.AbortResponse:
        """Stop a request by its name. One that has ended already is no fault."""
        del context
        call = self._calls.get(request.request_id)
        if call is None:
            return sglang_pb2.AbortResponse(success=True, message="no such request runs")
        self._session.stop(call)
        return sglang_pb2.AbortResponse(success=True)

    async def GetModelInfo(  # noqa: N802
        self, request: sglang_pb2.GetModelInfoRequest, context: Context
    ) -> sglang_pb2.GetModelInfoResponse:
        """The first model."""
        del request
        await self._check_open(context)
        return model_info(self._engine.describe().models[0])

    async def GetServerInfo(  # noqa: N802
        self, request: sglang_pb2.GetServerInfoRequest, context: Context
    ) -> sglang_pb2.GetServerInfoResponse:
        """How it was started."""
        del request
        await self._check_open(context)
        now = time.time()  # noqa: TID251 -- beside the date of the start
        return server_info(self._engine.describe(), self._started_at, now, self._session.running)

    async def GetLoads(  # noqa: N802
        self, request: sglang_pb2.GetLoadsRequest, context: Context
    ) -> sglang_pb2.GetLoadsResponse:
        """The load."""
        del request
        await self._check_open(context)
        return loads(self._engine.load(), self._engine.describe(), datetime.now(UTC).isoformat())

    async def FlushCache(  # noqa: N802
        self, request: common_pb2.FlushCacheRequest, context: Context
    ) -> common_pb2.FlushCacheResponse:
        """Forget cached prefixes."""
        del request
        await self._check_open(context)
        flushed = self._engine.flush_cache()
        count = flushed if isinstance(flushed, int) else await flushed
        return common_pb2.FlushCacheResponse(success=True, message=f"{count} tokens dropped")

    async def StartProfile(  # noqa: N802
        self, request: common_pb2.StartProfileRequest, context: Context
    ) -> common_pb2.ProfileResponse:
        """Begin to profile."""
        await self._check_open(context)
        return common_pb2.ProfileResponse(
            **await _tried(self._engine.start_profile(request.output_dir), context)
        )

    async def StopProfile(  # noqa: N802
        self, request: common_pb2.StopProfileRequest, context: Context
    ) -> common_pb2.ProfileResponse:
        """End it."""
        del request
        await self._check_open(context)
        return common_pb2.ProfileResponse(**await _tried(self._engine.stop_profile(), context))

    async def GetTokenizer(  # noqa: N802
        self, request: common_pb2.GetTokenizerRequest, context: Context
    ) -> AsyncIterator[common_pb2.GetTokenizerChunk]:
        """The tokenizer's files."""
        del request
        await self._check_open(context)
        directory = self._engine.tokenizer_dir("")
        try:
            if directory is None:
                raise FileNotFoundError("the engine has none")
            archive = await asyncio.to_thread(pack_tokenizer, directory)
        except OSError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the tokenizer cannot be read: {error}")
            raise
        pieces = list(archive.pieces())
        for piece in pieces[:-1]:
            yield common_pb2.GetTokenizerChunk(data=piece)
        yield common_pb2.GetTokenizerChunk(data=pieces[-1], sha256=archive.sha256)

    async def SubscribeKvEvents(  # noqa: N802
        self, request: common_pb2.SubscribeKvEventsRequest, context: Context
    ) -> AsyncIterator[common_pb2.KvEventBatch]:
        """Tell of the prefix cache from now on."""
        await self._check_open(context)
        card = self._engine.describe().models[0]
        if not card.capabilities.cache_events:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the engine tells nothing of its cache")
        if request.start_sequence_number:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, "nothing is kept to resume from; start from 0")
        subscription = CacheSubscription(card.id, self._limits.max_unsent_events)
        self._subscriptions.add(subscription)
        self._engine.watch_cache(subscription)
        try:
            while batches := await subscription.take():
                for batch in batches:
                    yield batch
            await context.abort(grpc.StatusCode.DATA_LOSS, "the subscriber does not read; begin anew")
        finally:
            self._subscriptions.discard(subscription)
            self._engine.close(subscription)

    async def LoadLoRAAdapter(  # noqa: N802
        self, request: sglang_pb2.LoadLoRAAdapterRequest, context: Context
    ) -> sglang_pb2.LoadLoRAAdapterResponse:
        """Load an adapter. Its name is its id here."""
        await self._check_open(context)
        tried = await _tried(self._engine.load_lora(request.lora_name, request.lora_path), context)
        return sglang_pb2.LoadLoRAAdapterResponse(**tried, loaded_lora_ids=self._take_loras())

    async def UnloadLoRAAdapter(  # noqa: N802
        self, request: sglang_pb2.UnloadLoRAAdapterRequest, context: Context
    ) -> sglang_pb2.UnloadLoRAAdapterResponse:
        """Unload an adapter."""
        await self._check_open(context)
        tried = await _tried(self._engine.unload_lora(request.lora_name), context)
        return sglang_pb2.UnloadLoRAAdapterResponse(**tried, loaded_lora_ids=self._take_loras())

    async def ListLoadedLoRAAdapters(  # noqa: N802
        self, request: sglang_pb2.ListLoadedLoRAAdaptersRequest, context: Context
    ) -> sglang_pb2.ListLoadedLoRAAdaptersResponse:
        """The adapters that are loaded."""
        del request
        await self._check_open(context)
        names = self._take_loras()
        adapters = [sglang_pb2.LoadedLoRAAdapter(lora_id=name, lora_name=name) for name in names]
        return sglang_pb2.ListLoadedLoRAAdaptersResponse(loaded_adapters=adapters)

    def _take_loras(self) -> list[str]:
        self._take_models()
        return list(self._engine.describe().models[0].loras)

    def _take_models(self) -> None:
        # The same mapping always, for the session holds it.
        self._models.update(models_by_name(self._engine.describe()))

    async def _check_open(self, context: Context) -> None:
        if self._closed_because:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._closed_because)


async def _fail(failed: work_pb2.Failed, context: Context) -> None:
    await context.abort(_CODES.get(failed.code, grpc.StatusCode.UNKNOWN), failed.message)


async def _tried(work: Awaitable[None], context: Context) -> dict[str, Any]:
    """Fields `success` and `message` of what an operator asked for."""
    try:
        await work
    except NotServed as refusal:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, str(refusal))
        raise
    except EngineFault as refusal:
        return {"success": False, "message": str(refusal)}
    return {"success": True}
