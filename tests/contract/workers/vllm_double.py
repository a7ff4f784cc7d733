"""A small server on vLLM's gRPC protocol that answers by script, with the habits of smg-grpc-servicer's."""

from __future__ import annotations

import asyncio

import grpc.aio
from smg_grpc_proto.generated import vllm_engine_pb2 as pb
from smg_grpc_proto.generated import vllm_engine_pb2_grpc as pb_grpc

from tests.contract.workers.engine_script import CACHED_TOKENS, LATE_FINISH, STOP_ID, logprob, script
from tests.contract.workers.sglang_double import CODES, SglangDouble


class VllmDouble(SglangDouble):
    """One server. The protocol tells no start time: a restart shows by the connection alone."""

    def __init__(self, models: tuple[str, ...] = ("m",)) -> None:
        super().__init__(models)
        self.constrained_decoding_start = "after_reasoning"

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        pb_grpc.add_VllmEngineServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def _answer(self, request, context):
        prompt, params = list(request.tokenized.input_ids), request.sampling_params
        if self.is_wedged:
            await asyncio.Event().wait()
        most = params.max_tokens if params.HasField("max_tokens") else None
        plans = [script(prompt, most, choice) for choice in range(params.n)]
        failure = plans[0].failure
        if failure and not plans[0].ids:
            await context.abort(CODES[failure[0]], failure[1])
        if request.stream or failure or plans[0].hangs:
            for step in range(max(len(plan.ids) for plan in plans)):
                for choice, plan in enumerate(plans):
                    if step < len(plan.ids):
                        yield _chunk(request, prompt, plan.ids[step], choice, is_first=step == 0)
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
        self.aborts += request.request_ids
        self.changes.notify()
        return pb.AbortResponse()

    async def GetModelInfo(self, request, context):
        return pb.GetModelInfoResponse(
            model_path="/models/m",
            served_model_name=self.models[0],
            is_generation=True,
            max_context_length=1024,
            eos_token_ids=[STOP_ID],
        )

    async def GetServerInfo(self, request, context):
        return pb.GetServerInfoResponse(
            server_type="vllm-grpc",
            max_num_seqs=64,
            constrained_decoding_start=self.constrained_decoding_start,
        )

    async def GetLoads(self, request, context):
        return pb.GetLoadsResponse(
            version="0.32", loads=[pb.SchedulerLoad(num_running_reqs=len(self.running))]
        )


def _counts(prompt, new):
    # Of the message alone, as vLLM's servicer has it.
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(new),
        "cached_tokens": min(CACHED_TOKENS, len(prompt) - 1),
    }


def _chunk(request, prompt, token, choice, *, is_first):
    chunk = pb.GenerateStreamChunk(
        index=choice,
        token_ids=[token],
        output_logprobs=_output_rows(request, [token]),
        input_logprobs=_input_rows(request, prompt) if is_first else None,
        **_counts(prompt, [token]),
    )
    return pb.GenerateResponse(chunk=chunk)


def _complete(request, prompt, plan, choice):
    ids = plan.ids[-1:] if request.stream else plan.ids
    complete = pb.GenerateComplete(
        index=choice,
        output_ids=ids,
        finish_reason=plan.finish,
        output_logprobs=_output_rows(request, ids),
        input_logprobs=_input_rows(request, prompt),
        **_counts(prompt, ids),
    )
    # The model's own end of sequence is not named.
    if plan.matched is not None and plan.matched != STOP_ID:
        complete.matched_token_id = plan.matched
    return pb.GenerateResponse(complete=complete)


def _top(token, count):
    """The chosen token first, then the likeliest, as the rows of vLLM are ordered; cut to the number asked for."""
    entries = {token: logprob(token)} | {token + step: logprob(token) - step for step in range(count)}
    pairs = list(entries.items())[:count]
    return pb.TopLogProbs(token_ids=[key for key, _ in pairs], values=[value for _, value in pairs])


def _output_rows(request, ids):
    params = request.sampling_params
    if not params.HasField("logprobs") or not ids:
        return None
    tops = [_top(token, params.logprobs) for token in ids] if params.logprobs else []
    return pb.OutputLogProbs(token_logprobs=map(logprob, ids), token_ids=ids, top_logprobs=tops)


def _input_rows(request, prompt):
    if not request.sampling_params.HasField("prompt_logprobs"):
        return None
    rows = pb.InputLogProbs(token_ids=prompt)
    for index, token in enumerate(prompt):
        entry = rows.token_logprobs.add()
        if index:
            entry.value = logprob(token)
    return rows
