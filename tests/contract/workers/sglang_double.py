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
_CODES = {code.value[0]: code for code in grpc.StatusCode}


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
        self.metadata: list[dict[str, str]] = []
        self._started_at = 0

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    async def start(self) -> None:
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
        plan = script(prompt, most)
        if plan.failure and not plan.ids:
            await context.abort(_CODES[plan.failure[0]], plan.failure[1])
        if request.stream or plan.failure or plan.hangs:
            for index, token in enumerate(plan.ids):
                yield _chunk(request, prompt, plan.ids[: index + 1], token, is_first=index == 0)
                if prompt[0] == LATE_FINISH:
                    await asyncio.sleep(0)
        if plan.failure:
            await context.abort(_CODES[plan.failure[0]], plan.failure[1])
        if plan.hangs:
            await asyncio.Event().wait()
        yield _complete(request, prompt, plan)

    async def Embed(self, request, context):
        ids = request.tokenized.input_ids
        return pb.EmbedResponse(embedding=[3.0, 4.0], embedding_dim=2, prompt_tokens=len(ids))

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
        )

    async def GetServerInfo(self, request, context):
        return pb.GetServerInfoResponse(
            sglang_version="0.5", start_time=Timestamp(seconds=self._started_at), server_type="grpc"
        )

    async def GetLoads(self, request, context):
        return pb.GetLoadsResponse(
            loads=[pb.SchedulerLoad(num_running_reqs=len(self.running), max_running_requests=64)]
        )

    async def FlushCache(self, request, context):
        self.flushes += 1
        return common_pb2.FlushCacheResponse(success=True)

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


def _chunk(request, prompt, so_far, token, *, is_first):
    chunk = pb.GenerateStreamChunk(
        token_ids=[token],
        output_logprobs=_output_rows(request, [token]),
        input_logprobs=_input_rows(request, prompt) if is_first else None,
        **_counts(prompt, so_far),
    )
    return pb.GenerateResponse(request_id=request.request_id, chunk=chunk)


def _complete(request, prompt, plan):
    # As SGLang has it: with a stream the last chunk once more, without one everything.
    ids = plan.ids[-1:] if request.stream else plan.ids
    complete = pb.GenerateComplete(
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
