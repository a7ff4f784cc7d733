"""A text completion request from prompts to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.pipelines.answer import Answer
from smg.pipelines.best_of import BestOfSink
from smg.pipelines.completion_prompt import completion_prompts
from smg.pipelines.engine_call import Work
from smg.pipelines.off_loop import off_loop
from smg.pipelines.plan import GenerationPlan
from smg.pipelines.sampling import constraint, text_options
from smg.validation.completion import validate_completion
from smg.validation.rules import set_fields
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.catalog import ModelCatalog, ServedModel
    from smg.pipelines.echo import PromptEcho
    from smg.pipelines.engine_call import EngineCall
    from smg.pipelines.meter import RequestMeter
    from smg.pipelines.sinks import AnswerSink
    from smg.types.context import RequestContext, TraceHeaders
    from smg_proto.chat.v1 import completion_pb2


class CompletionPipeline:
    """Answers text completion requests. Choices are numbered prompt by prompt, n for each."""

    def __init__(self, catalog: ModelCatalog, engine_call: EngineCall) -> None:
        self._catalog = catalog
        self._engine_call = engine_call

    async def run(
        self,
        request: completion_pb2.CompletionRequest,
        context: RequestContext,
        sink: AnswerSink,
        meter: RequestMeter,
    ) -> None:
        """Answer a request into a sink. Returns when the answer has ended; cancelling aborts it.

        Raises:
            SmgError: the request is refused or failed before the first event; nothing went to the sink.
        """
        await off_loop(lambda: validate_completion(request), size=request.ByteSize())
        model = await self._catalog.resolve(request.model)
        prompts, echoes = await completion_prompts(model, request, request.best_of or request.n or 1)
        if request.best_of:
            sink = _best_of(request, echoes, sink)
        answer = Answer(context.answer_id(request.rid), meter.created, model.id, sink)
        plan = _plan(model, request, meter.trace_headers, echoes)
        work = Work(
            meter.route,
            model.id,
            meter.arrived_at,
            prompts[0].ids,
            lambda: plan.attempt(prompts, answer),
            plan.constraint_kind,
            model.card.tokenizer_sha256,
            request.rid,
        )
        with meter.measure(model.id, answer):
            await self._engine_call.run(work, answer, context)


def _best_of(
    request: completion_pb2.CompletionRequest, echoes: Sequence[PromptEcho], sink: AnswerSink
) -> AnswerSink:
    return BestOfSink(
        sink,
        [len(echo.ids) for echo in echoes],
        best_of=request.best_of,
        n=request.n or 1,
        logprobs=request.HasField("logprobs"),
    )


def _plan(
    model: ServedModel,
    request: completion_pb2.CompletionRequest,
    trace: TraceHeaders,
    echoes: Sequence[PromptEcho],
) -> GenerationPlan:
    fields = set_fields(request.sampling)
    logprobs = _logprobs(request)
    return GenerationPlan(
        model,
        fields,
        text_options(fields, logprobs=logprobs is not None)._replace(end_logprobs=True),
        choices=request.best_of or request.n or 1,
        stream=request.stream,
        constraint=constraint(fields, request.json_schema if request.HasField("json_schema") else None),
        logprobs=logprobs,
        trace=trace,
        echoes=echoes,
    )


def _logprobs(request: completion_pb2.CompletionRequest) -> work_pb2.LogprobsOptions | None:
    """What the client asked for, and what it takes to choose the best."""
    if not request.HasField("logprobs"):
        return work_pb2.LogprobsOptions(output=True) if request.best_of else None
    options = work_pb2.LogprobsOptions(output=True, top_k=request.logprobs)
    if request.echo:
        options.prompt_start = 0
    return options
