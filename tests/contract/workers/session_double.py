"""A small engine on smg.engine.v1 that answers by script and can be told to misbehave."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from array import array

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from smg_proto.engine.v1 import card_pb2, engine_pb2, engine_pb2_grpc, work_pb2
from tests.contract.workers.engine_script import CACHED_TOKENS, LATE_FINISH, Changes, logprob, script

SERVICE = "smg.engine.v1.EngineService"
_INSTANCES = itertools.count(1)
_REASONS = {"length": work_pb2.FINISH_REASON_LENGTH, "stop": work_pb2.FINISH_REASON_STOP}


class SessionDouble(engine_pb2_grpc.EngineServiceServicer):
    """One server. `start` after `kill` is a restart on the same port, with a new instance id."""

    def __init__(self, models: tuple[str, ...] = ("m",)) -> None:
        self.models = models
        self.port = 0
        self.instance_id = ""
        self.archive = b""
        self.sha256: str | None = None
        self.changes = Changes()
        self.requests: list[work_pb2.Generate] = []
        self.messages = 0
        self.aborts: list[int] = []
        self.running: set[int] = set()
        self.is_wedged = False
        self.flushes = 0
        self._queues: set[asyncio.Queue[engine_pb2.SessionEvent | None]] = set()
        self.health = HealthServicer()

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.instance_id = f"instance-{next(_INSTANCES)}"
        self.health = HealthServicer()
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        engine_pb2_grpc.add_EngineServiceServicer_to_server(self, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.set_health(serving=True)
        await self._server.start()

    async def kill(self, grace_s: float | None = None) -> None:
        await self._server.stop(grace_s)

    async def set_health(self, *, serving: bool) -> None:
        status = (
            health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        await self.health.set(SERVICE, status)

    def push(self, event: engine_pb2.SessionEvent) -> None:
        """Send an event of the test's own on every session."""
        for queue in self._queues:
            queue.put_nowait(event)

    async def Describe(self, request, context):
        models = [
            card_pb2.ModelCard(
                id=model, context_length=1024, capabilities=card_pb2.Capabilities(generate=True)
            )
            for model in self.models
        ]
        return card_pb2.DescribeResponse(
            models=models, engine="double", instance_id=self.instance_id, max_running=64
        )

    async def GetTokenizer(self, request, context):
        if not self.archive:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no tokenizer here")
        half = len(self.archive) // 2
        yield card_pb2.GetTokenizerResponse(data=self.archive[:half])
        digest = hashlib.sha256(self.archive).hexdigest() if self.sha256 is None else self.sha256
        yield card_pb2.GetTokenizerResponse(data=self.archive[half:], sha256=digest)

    async def FlushCache(self, request, context):
        self.flushes += 1
        return card_pb2.FlushCacheResponse()

    async def Session(self, requests, context):
        queue: asyncio.Queue[engine_pb2.SessionEvent | None] = asyncio.Queue()
        self._queues.add(queue)
        queue.put_nowait(engine_pb2.SessionEvent(ready=engine_pb2.Ready(instance_id=self.instance_id)))
        reader = asyncio.ensure_future(self._take(requests, queue))
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            reader.cancel()
            self._queues.discard(queue)
            self.running.clear()
            self.changes.notify()

    async def _take(self, requests, queue) -> None:
        async for message in requests:
            self.messages += 1
            for request in message.generate:
                self.requests.append(request)
                self.running.add(request.sequence)
                if not self.is_wedged:
                    self._answer(request, queue)
            for request in message.score:
                queue.put_nowait(scored_event(request))
            for request in message.embed:
                queue.put_nowait(embedded_event(request))
            for request in message.classify:
                queue.put_nowait(_classified(request))
            for sequence in message.abort:
                self._abort(sequence, queue)
            self.changes.notify()
        queue.put_nowait(None)

    def _abort(self, sequence, queue) -> None:
        self.aborts.append(sequence)
        if sequence in self.running and not self.is_wedged:
            self.running.discard(sequence)
            queue.put_nowait(
                engine_pb2.SessionEvent(
                    finished=[work_pb2.Finished(sequence=sequence, reason=work_pb2.FINISH_REASON_ABORT)]
                )
            )

    def _answer(self, request, queue) -> None:
        events, is_over = answer_events(request)
        for event in events:
            queue.put_nowait(event)
        if is_over:
            self.running.discard(request.sequence)


def answer_events(request):
    """What a sequence gets, and whether it has ended with that."""
    prompt = list(array("I", request.prompt_ids))
    most = request.sampling.max_new_tokens if request.sampling.HasField("max_new_tokens") else None
    plan = script(prompt, most, request.sampling.choice_index)
    return list(_events(request, plan, prompt)), not plan.hangs


def _events(request, plan, prompt):
    sequence = request.sequence
    if plan.failure and not plan.ids:
        yield _failed(sequence, plan)
        return
    started = work_pb2.Started(
        sequence=sequence, prompt_tokens=len(prompt), cached_tokens=min(CACHED_TOKENS, len(prompt) - 1)
    )
    if request.logprobs.HasField("prompt_start"):
        started.prompt_logprobs.extend(
            work_pb2.TokenLogprobs(logprob=None if index == 0 else logprob(token))
            for index, token in enumerate(prompt)
            if index >= request.logprobs.prompt_start
        )
    yield engine_pb2.SessionEvent(started=[started])
    wants_logprobs = request.logprobs.output
    rows = [_row(request, token) for token in plan.ids] if wants_logprobs else []
    end = None if plan.failure or plan.hangs else _finished(request, plan, prompt, rows)
    if request.stream:
        for index, token in enumerate(plan.ids):
            event = engine_pb2.SessionEvent(sequence=[sequence], token=[token])
            if wants_logprobs:
                event.logprobs.append(work_pb2.StepLogprobs(sequence=sequence, tokens=[rows[index]]))
            if end is not None and index == len(plan.ids) - 1 and prompt[0] != LATE_FINISH:
                event.finished.append(end)
                end = None
            yield event
    if end is not None:
        yield engine_pb2.SessionEvent(finished=[end])
    if plan.failure:
        yield _failed(sequence, plan)


def _row(request, token):
    options = request.logprobs
    return work_pb2.TokenLogprobs(
        logprob=logprob(token),
        top_token=[token + step for step in range(options.top_k)],
        top_logprob=[logprob(token) - step for step in range(options.top_k)],
        asked_logprob=[logprob(asked) for asked in options.token_ids],
    )


def _finished(request, plan, prompt, rows):
    finished = work_pb2.Finished(
        sequence=request.sequence,
        reason=_REASONS[plan.finish],
        prompt_tokens=len(prompt),
        completion_tokens=len(plan.ids),
        cached_tokens=min(CACHED_TOKENS, len(prompt) - 1),
    )
    if plan.matched is not None:
        finished.matched_token_id = plan.matched
    if not request.stream:
        finished.token_ids = array("I", plan.ids).tobytes()
        finished.logprobs.extend(rows)
    return finished


def _failed(sequence, plan):
    code, message = plan.failure
    failed = work_pb2.Failed(sequence=sequence, code=code, message=message, is_retryable=code == 8)
    return engine_pb2.SessionEvent(failed=[failed])


def scored_event(request):
    prefix = len(request.prefix_ids) // 4
    rows = [
        work_pb2.SuffixScores(logprobs=[logprob(label) for label in suffix.label_ids])
        for suffix in request.suffixes
    ]
    tokens = prefix + sum(len(suffix.ids) // 4 for suffix in request.suffixes)
    scored = work_pb2.Scored(sequence=request.sequence, suffixes=rows, prompt_tokens=tokens)
    return engine_pb2.SessionEvent(scored=[scored])


def embedded_event(request):
    ids = array("I", request.input_ids)
    embedded = work_pb2.Embedded(sequence=request.sequence, values=[0.6, 0.8], prompt_tokens=len(ids))
    return engine_pb2.SessionEvent(embedded=[embedded])


def _classified(request):
    ids = array("I", request.input_ids)
    classified = work_pb2.Classified(sequence=request.sequence, logits=[0.6, 0.8], prompt_tokens=len(ids))
    return engine_pb2.SessionEvent(classified=[classified])
