"""smg.decision.v1.DecisionService: typed questions, one request a call or many on one stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from smg.decisions.layout import PROMPT_VERSION
from smg.errors import SmgError
from smg.services.call import CONTEXT, start_meter
from smg.services.methods import DECISION_SERVICE, DECISIONS_ROUTE
from smg.services.rpc import add_service, duplex_method, unary_method
from smg_proto.decision.v1 import decision_pb2
from smg_proto.decision.v1 import question_pb2 as q

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import grpc.aio

    from smg.pipelines.decide.pipeline import DecisionPipeline
    from smg.pipelines.meter import Meters
    from smg.services.rpc import Context

_TYPES: Mapping[str, q.QuestionType.ValueType] = {
    "noul": q.QUESTION_TYPE_NOUL,
    "choice": q.QUESTION_TYPE_CHOICE,
    "score": q.QUESTION_TYPE_SCORE,
    "set": q.QUESTION_TYPE_SET,
    "span": q.QUESTION_TYPE_SPAN,
}


class DecisionService:
    """The methods and what they need."""

    def __init__(self, pipeline: DecisionPipeline, meters: Meters) -> None:
        self._pipeline = pipeline
        self._meters = meters

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods."""
        methods = {
            "Decide": unary_method(self.decide, decision_pb2.DecideRequest),
            "StreamDecide": duplex_method(self.stream_decide, decision_pb2.StreamDecideRequest),
            "ListDecisionModels": unary_method(
                self.list_decision_models, decision_pb2.ListDecisionModelsRequest
            ),
        }
        add_service(server, DECISION_SERVICE, methods)

    async def decide(self, request: decision_pb2.DecideRequest, _: Context) -> decision_pb2.DecideResponse:
        """Answer one request."""
        return await self._pipeline.run(request, CONTEXT.get(), start_meter(self._meters, DECISIONS_ROUTE))

    async def stream_decide(
        self, requests: AsyncIterator[decision_pb2.StreamDecideRequest], context: Context
    ) -> None:
        """Answer requests as they come. No more are read than run at a time: the client is held back by its own stream."""
        places = asyncio.Semaphore(self._pipeline.settings.decision_concurrent_states)
        writing = asyncio.Lock()

        async def answer(request: decision_pb2.StreamDecideRequest) -> None:
            try:
                response = await self._one(request)
                async with writing:
                    await context.write(response)
            finally:
                places.release()

        async with asyncio.TaskGroup() as group:
            async for request in requests:
                await places.acquire()
                group.create_task(answer(request))

    async def list_decision_models(
        self, _request: decision_pb2.ListDecisionModelsRequest, _: Context
    ) -> decision_pb2.ListDecisionModelsResponse:
        """List the models that can be asked."""
        models = [
            decision_pb2.DecisionModel(
                id=model.id,
                unsupported=surface.unsupported,
                question_types=[_TYPES[kind.value] for kind in surface.kinds],
                readout=surface.readout,
                max_options=surface.max_options,
                max_input_tokens=self._pipeline.max_input_tokens(model),
                prompt_version=PROMPT_VERSION,
            )
            for model, surface in await self._pipeline.known_models()
        ]
        return decision_pb2.ListDecisionModelsResponse(models=models)

    async def _one(self, request: decision_pb2.StreamDecideRequest) -> decision_pb2.StreamDecideResponse:
        answered = decision_pb2.StreamDecideResponse(tag=request.tag)
        try:
            meter = self._meters.start(DECISIONS_ROUTE, CONTEXT.get())
            answered.response.CopyFrom(await self._pipeline.run(request.request, CONTEXT.get(), meter))
        except SmgError as error:
            failure = answered.failure
            failure.code, failure.error, failure.message = error.grpc_status, error.code, error.message
        return answered
