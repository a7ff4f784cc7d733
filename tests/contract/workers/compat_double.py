"""The scripted engine behind the servicer that answers SGLang's protocol: our client against our server."""

from __future__ import annotations

import hashlib

import grpc
import grpc.aio
from smg_grpc_proto.generated import common_pb2, sglang_scheduler_pb2

from servicers.base import Engine
from servicers.compat.servicer import SglangSchedulerServicer
from servicers.limits import SessionLimits
from servicers.models import models_by_name
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2
from tests.contract.workers.engine_script import Changes
from tests.contract.workers.session_double import answer_events, embedded_event, scored_event

MODEL = card_pb2.ModelCard(
    id="m",
    path="/models/m",
    context_length=1024,
    vocab_size=400_000,
    embedding_size=2,
    capabilities=card_pb2.Capabilities(
        generate=True,
        score=True,
        embed=True,
        prompt_logprobs=True,
        constraints=["json_schema", "regex", "ebnf", "structural_tag"],
    ),
)


class ScriptedEngine(Engine):
    """Answers by script, at once."""

    name = "scripted"

    def __init__(self) -> None:
        self.changes = Changes()
        self.requests: list[work_pb2.Generate] = []
        self.aborts: list[int] = []
        self.running: set[int] = set()
        self.is_wedged = False
        self.flushes = 0

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def describe(self):
        return card_pb2.DescribeResponse(models=[MODEL], engine=self.name, max_running=64)

    def submit(self, session, request) -> None:
        for each in request.generate:
            self.requests.append(each)
            self.running.add(each.sequence)
            if self.is_wedged:
                continue
            events, is_over = answer_events(each)
            if is_over:
                self.running.discard(each.sequence)
            for event in events:
                session.emit(event)
        for each in request.score:
            session.emit(scored_event(each))
        for each in request.embed:
            session.emit(embedded_event(each))
        for sequence in request.abort:
            self.aborts.append(sequence)
            if sequence in self.running:
                self.running.discard(sequence)
                end = work_pb2.Finished(sequence=sequence, reason=work_pb2.FINISH_REASON_ABORT)
                session.emit(engine_pb2.SessionEvent(finished=[end]))
        self.changes.notify()

    def close(self, session) -> None:
        self.running.clear()
        self.changes.notify()

    def load(self):
        return card_pb2.Load(running=len(self.running))

    def flush_cache(self) -> int:
        self.flushes += 1
        return 0

    def tokenizer_dir(self, model):
        return None


class _Servicer(SglangSchedulerServicer):
    """With a health and an archive that a test can set."""

    def __init__(self, double: CompatDouble) -> None:
        super().__init__(double.engine, SessionLimits())
        self._double = double

    def _take_models(self) -> None:
        # Prompts of any length, as the other doubles take them.
        unbounded = card_pb2.DescribeResponse()
        unbounded.CopyFrom(self._engine.describe())
        unbounded.models[0].context_length = 0
        self._models.update(models_by_name(unbounded))

    async def HealthCheck(self, request, context):
        if self._double.is_serving:
            return await super().HealthCheck(request, context)
        return sglang_scheduler_pb2.HealthCheckResponse(healthy=False, message="draining")

    async def Abort(self, request, context):
        # Also one whose call was cancelled before it reached the engine.
        self._double.engine.aborts.append(request.request_id)
        answer = await super().Abort(request, context)
        self._double.engine.changes.notify()
        return answer

    async def GetTokenizer(self, request, context):
        double = self._double
        if not double.archive:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no tokenizer here")
        half = len(double.archive) // 2
        yield common_pb2.GetTokenizerChunk(data=double.archive[:half])
        digest = hashlib.sha256(double.archive).hexdigest() if double.sha256 is None else double.sha256
        yield common_pb2.GetTokenizerChunk(data=double.archive[half:], sha256=digest)


class CompatDouble:
    """One server. `start` after `kill` is a restart on the same port, with a new start time."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine()
        self.port = 0
        self.archive = b""
        self.sha256: str | None = None
        self.is_serving = True

    def __getattr__(self, name: str):
        return getattr(self.engine, name)

    @property
    def is_wedged(self) -> bool:
        return self.engine.is_wedged

    @is_wedged.setter
    def is_wedged(self, value: bool) -> None:
        self.engine.is_wedged = value

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    async def start(self) -> None:
        servicer = _Servicer(self)
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        servicer.add_to(self._server)
        servicer.open()
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def kill(self, grace_s: float | None = None) -> None:
        await self._server.stop(grace_s)

    async def set_health(self, *, serving: bool) -> None:
        self.is_serving = serving
