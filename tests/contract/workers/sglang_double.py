"""A small server on SGLang's gRPC protocol that answers by script and can be told to misbehave."""

from __future__ import annotations

import asyncio
import hashlib
import itertools

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp
from smg_grpc_proto.generated import common_pb2
from smg_grpc_proto.generated import sglang_scheduler_pb2 as pb
from smg_grpc_proto.generated import sglang_scheduler_pb2_grpc as pb_grpc

from tests.contract.workers.engine_script import CACHED_TOKENS, LATE_FINISH, Changes, logprob, script

_STARTS = itertools.count(1)
CODES = {code.value[0]: code for code in grpc.StatusCode}


class SglangDouble(pb_grpc.SglangSchedulerServicer):
    """One server. `start` after `kill` is a restart on the same port, with a new start time."""

    def __init__(self, models: tuple[str, ...] = ("m",)) -> None:
        self.models = models
        self.port = 0
        self.archive = b""
        self.sha256: str | None = None
        self.changes = Changes()
        self.requests: list[pb.GenerateRequest] = []
        self.aborts: list[str] = []
        self.cancelled: list[str] = []
        self.running: set[str] = set()
        self.is_wedged = False
        self.is_serving = True
        self.flushes = 0
        self.loras: dict[str, str] = {}
        self.profiles: list[str | None] = []
        self.server_args: dict[str, str | None] = {}
        self.metadata: list[dict[str, str]] = []
        self.kv_batches: list[common_pb2.KvEventBatch] | None = None
        self.kv_subscriptions: list[int] = []
        self.kv_refusal: grpc.StatusCode | None = None
        self._kv_more = Changes()
        self.starts_again = True
        self._started_at = 0

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    async def start(self) -> None:
        if self.starts_again or not self._started_at:
            self._started_at = next(_STARTS)
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        pb_grpc.add_SglangSchedulerServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def kill(self, grace_s: float | None = None) -> None:
        await self._server.stop(grace_s)

    async def set_health(self, *, serving: bool) -> None:
        self.is_serving = serving

    async def Generate(self, request, context):
        self.requests.append(request)
        self.metadata.append({item.key: str(item.value) for item in context.invocation_metadata()})
        self.running.add(request.request_id)
        self.changes.notify()
        try:
            async for response in self._answer(request, context):
                yield response
        except asyncio.CancelledError:
            self.cancelled.append(request.request_id)
            raise
        finally:
            self.running.discard(request.request_id)
            self.changes.notify()

    async def _answer(self, request, context):
        prompt = list(request.tokenized.input_ids)
        most = (
            request.sampling_params.max_new_tokens
            if request.sampling_params.HasField("max_new_tokens")
            else None
        )
        if self.is_wedged:
            await asyncio.Event().wait()
        plans = [script(prompt, most, choice) for choice in range(request.sampling_params.n)]
        failure = plans[0].failure
        if failure and not plans[0].ids:
            await context.abort(CODES[failure[0]], failure[1])
        if request.stream or failure or plans[0].hangs:
            for step in range(max(len(plan.ids) for plan in plans)):
                for choice, plan in enumerate(plans):
                    if step < len(plan.ids):
                        yield _chunk(request, prompt, plan.ids[: step + 1], choice)
                if prompt[0] == LATE_FINISH:
                    await asyncio.sleep(0)
        if failure:
            await context.abort(CODES[failure[0]], failure[1])
        for choice, plan in enumerate(plans):
            if not plan.hangs:
                yield _complete(request, prompt, plan, choice)
        if any(plan.hangs for plan in plans):
            await asyncio.Event().wait()

    async def Embed(self, request, context):
        ids = request.tokenized.input_ids
        return pb.EmbedResponse(embedding=[0.6, 0.8], embedding_dim=2, prompt_tokens=len(ids))

    async def HealthCheck(self, request, context):
        return pb.HealthCheckResponse(healthy=self.is_serving, message="" if self.is_serving else "draining")

    async def Abort(self, request, context):
        self.aborts.append(request.request_id)
        self.changes.notify()
        return pb.AbortResponse(success=True)

    async def GetModelInfo(self, request, context):
        return pb.GetModelInfoResponse(
            model_path="/models/m",
            served_model_name=self.models[0],
            is_generation=True,
            max_context_length=1024,
            num_labels=2,
        )

    async def GetServerInfo(self, request, context):
        info = pb.GetServerInfoResponse(
            sglang_version="0.5", start_time=Timestamp(seconds=self._started_at), server_type="grpc"
        )
        info.server_args.update(self.server_args)
        return info

    async def GetLoads(self, request, context):
        return pb.GetLoadsResponse(
            loads=[pb.SchedulerLoad(num_running_reqs=len(self.running), max_running_requests=64)]
        )

    async def ListLoadedLoRAAdapters(self, request, context):
        if not self.loras:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "an older server")
        adapters = [pb.LoadedLoRAAdapter(lora_name=name, lora_id=self.loras[name]) for name in self.loras]
        return pb.ListLoadedLoRAAdaptersResponse(loaded_adapters=adapters)

    async def LoadLoRAAdapter(self, request, context):
        if request.lora_path == "/no/such":
            return pb.LoadLoRAAdapterResponse(success=False, message="no such directory")
        self.loras[request.lora_name] = request.lora_id
        return pb.LoadLoRAAdapterResponse(success=True)

    async def UnloadLoRAAdapter(self, request, context):
        is_known = self.loras.get(request.lora_name) == request.lora_id
        if is_known:
            del self.loras[request.lora_name]
        return pb.UnloadLoRAAdapterResponse(success=is_known, message="" if is_known else "no such adapter")

    async def StartProfile(self, request, context):
        self.profiles.append(request.output_dir)
        return common_pb2.ProfileResponse(success=True)

    async def StopProfile(self, request, context):
        is_running = bool(self.profiles) and self.profiles[-1] is not None
        self.profiles.append(None)
        return common_pb2.ProfileResponse(success=is_running, message="" if is_running else "not in progress")

    async def FlushCache(self, request, context):
        self.flushes += 1
        return common_pb2.FlushCacheResponse(success=True)

    async def SubscribeKvEvents(self, request, context):
        """What `tell_cache` was given, from a number on or all of it."""
        if self.kv_batches is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "KV cache events not enabled")
        self.kv_subscriptions.append(request.start_sequence_number)
        self.changes.notify()
        refusal, self.kv_refusal = self.kv_refusal, None
        if refusal is not None:
            await context.abort(refusal, "nothing is kept to resume from")
        seen: list[common_pb2.KvEventBatch] = []
        while True:
            await self._kv_more.until(lambda: len(self.kv_batches) > len(seen))
            batch = self.kv_batches[len(seen)]
            seen.append(batch)
            if batch.sequence_number >= request.start_sequence_number:
                yield batch

    def tell_cache(self, *batches: common_pb2.KvEventBatch) -> None:
        """Send batches to who subscribes."""
        self.kv_batches = [*(self.kv_batches or ()), *batches]
        self._kv_more.notify()

    async def GetTokenizer(self, request, context):
        if not self.archive:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no tokenizer here")
        half = len(self.archive) // 2
        yield common_pb2.GetTokenizerChunk(data=self.archive[:half])
        digest = hashlib.sha256(self.archive).hexdigest() if self.sha256 is None else self.sha256
        yield common_pb2.GetTokenizerChunk(data=self.archive[half:], sha256=digest)


def _counts(prompt, so_far):
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(so_far),
        "cached_tokens": min(CACHED_TOKENS, len(prompt) - 1),
    }


def _chunk(request, prompt, so_far, choice):
    chunk = pb.GenerateStreamChunk(
        index=choice,
        token_ids=so_far[-1:],
        output_logprobs=_output_rows(request, so_far[-1:]),
        input_logprobs=_input_rows(request, prompt) if len(so_far) == 1 else None,
        **_counts(prompt, so_far),
    )
    return pb.GenerateResponse(request_id=request.request_id, chunk=chunk)


def _complete(request, prompt, plan, choice):
    # As SGLang has it: with a stream the last chunk once more; without one everything, and no index.
    ids = plan.ids[-1:] if request.stream else plan.ids
    complete = pb.GenerateComplete(
        index=choice if request.stream else 0,
        output_ids=ids,
        finish_reason=plan.finish,
        output_logprobs=_output_rows(request, ids),
        input_logprobs=_input_rows(request, prompt) if not request.stream or not plan.ids else None,
        **_counts(prompt, plan.ids),
    )
    if plan.matched is not None:
        complete.matched_token_id = plan.matched
    return pb.GenerateResponse(request_id=request.request_id, complete=complete)


def _output_rows(request, ids):
    if not request.return_logprob:
        return None
    rows = pb.OutputLogProbs(token_logprobs=[logprob(token) for token in ids], token_ids=ids)
    asked = list(request.token_ids_logprob)
    positions = ids or ([0] if request.sampling_params.max_new_tokens == 0 else [])
    for token in positions:
        if request.top_logprobs_num and ids:
            top = rows.top_logprobs.add()
            top.token_ids.extend(token + step for step in range(request.top_logprobs_num))
            top.values.extend(logprob(token) - step for step in range(request.top_logprobs_num))
        if asked:
            # In an order of the server's own: the client must look ids up.
            rows.token_ids_logprobs.add(
                token_ids=asked[::-1], values=[logprob(each) for each in reversed(asked)]
            )
    return rows


def _input_rows(request, prompt):
    if not request.return_logprob or request.logprob_start_len < 0:
        return None
    rows = pb.InputLogProbs()
    for index, token in enumerate(prompt[request.logprob_start_len :]):
        entry = rows.token_logprobs.add()
        if index:
            entry.value = logprob(token)
        rows.token_ids.append(token)
    return rows
