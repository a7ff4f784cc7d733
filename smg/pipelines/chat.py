"""A chat request from message to answer, for every front: HTTP, gRPC and what is built on chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import InvalidRequest
from smg.parsers.reasoning import REASONING_PARSERS
from smg.parsers.tools import reads_schemas
from smg.pipelines.answer import Answer
from smg.pipelines.chat_prompt import chat_prompt
from smg.pipelines.engine_call import Work
from smg.pipelines.off_loop import INLINE_BYTES, in_thread
from smg.pipelines.output import PLAIN, OutputForm
from smg.pipelines.plan import GenerationPlan
from smg.pipelines.prompt_limits import check_context
from smg.pipelines.sampling import constraint, text_options
from smg.pipelines.tools import forced_schema, is_forced, tool_schemas, usable_tools
from smg.validation.chat import validate_chat
from smg.validation.rules import set_fields
from smg_proto.chat.v1 import options_pb2
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from smg.pipelines.admission import Admission
    from smg.pipelines.catalog import ModelCatalog, ServedModel
    from smg.pipelines.chat_prompt import ChatPrompt
    from smg.pipelines.engine_call import EngineCall
    from smg.pipelines.meter import RequestMeter
    from smg.pipelines.sinks import AnswerSink
    from smg.types.context import RequestContext
    from smg_proto.chat.v1 import chat_pb2

ANY_JSON_OBJECT = '{"type":"object"}'


class ChatPipeline:
    """Answers chat requests."""

    def __init__(self, catalog: ModelCatalog, admission: Admission, engine_call: EngineCall) -> None:
        self._catalog = catalog
        self._admission = admission
        self._engine_call = engine_call

    async def run(
        self,
        request: chat_pb2.ChatRequest,
        context: RequestContext,
        sink: AnswerSink,
        meter: RequestMeter,
    ) -> None:
        """Answer a request into a sink. Returns when the answer has ended; cancelling aborts it.

        Raises:
            SmgError: the request is refused or failed before the first event; nothing went to the sink.
        """
        async with self._admission.permit():
            # Reading the JSON texts of a long request takes long.
            is_long = request.ByteSize() > INLINE_BYTES
            if is_long:
                await in_thread(validate_chat, request)
            else:
                validate_chat(request)
            _refuse_other_outputs(request)
            model = await self._catalog.resolve(request.model)
            prompted = await chat_prompt(model, request)
            prompt = prompted.prompt
            check_context(model.card, prompt.tokens)
            answer = Answer(context.answer_id(request.rid), meter.created, model.id, sink)
            if is_long:
                plan = await in_thread(_plan, model, request, context, prompted)
            else:
                plan = _plan(model, request, context, prompted)
            work = Work(
                meter.route,
                model.id,
                prompt.ids,
                lambda: plan.attempt((prompt,), answer),
                plan.constraint_kind,
                model.card.tokenizer_sha256,
            )
            with meter.measure(model.id, answer):
                await self._engine_call.run(work, answer, context)


def _refuse_other_outputs(request: chat_pb2.ChatRequest) -> None:
    """Engines on gRPC write text and nothing else."""
    if request.return_audio:
        raise InvalidRequest(
            "return_audio is true; the workers write text only",
            code="audio_output_not_supported",
            param="return_audio",
        )
    for modality in request.modalities:
        if modality != "text":
            raise InvalidRequest(
                f"modalities has {modality[:40]!r}; the workers write text only",
                code="unsupported_output_modality",
                param="modalities",
            )


def _plan(
    model: ServedModel, request: chat_pb2.ChatRequest, context: RequestContext, prompted: ChatPrompt
) -> GenerationPlan:
    fields = set_fields(request.sampling) if request.HasField("sampling") else {}
    form = output_form(model, request, starts_inside=prompted.starts_inside)
    logprobs = None
    if request.logprobs:
        logprobs = work_pb2.LogprobsOptions(output=True, top_k=request.top_logprobs)
    return GenerationPlan(
        model,
        fields,
        text_options(fields, logprobs=request.logprobs, form=form),
        choices=request.n or 1,
        stream=request.stream,
        constraint=_constraint(model, request, fields, starts_inside=prompted.starts_inside),
        logprobs=logprobs,
        reasoning=prompted.thinks,
        traceparent=context.traceparent,
    )


def output_form(model: ServedModel, request: chat_pb2.ChatRequest, *, starts_inside: bool) -> OutputForm:
    """What the answer's text is made of."""
    separates = not request.HasField("separate_reasoning") or request.separate_reasoning
    reasoning = model.formats.reasoning if separates else None
    tools = usable_tools(request)
    has_tools = bool(tools)
    if reasoning is None and not has_tools:
        return PLAIN
    return OutputForm(
        reasoning=reasoning,
        starts_inside=starts_inside,
        tools=model.formats.tools if has_tools else None,
        schemas=tool_schemas(tools) if reads_schemas(model.formats.tools) else (),
        forced=has_tools and is_forced(request),
        forced_name=request.tool_choice.name,
        one_call=request.HasField("parallel_tool_calls") and not request.parallel_tool_calls,
        hold_reasoning=request.HasField("stream_reasoning") and not request.stream_reasoning,
    )


def _constraint(
    model: ServedModel, request: chat_pb2.ChatRequest, fields: Mapping[str, Any], *, starts_inside: bool
) -> work_pb2.Constraint | None:
    """The form that the output must have; after the reasoning, where the model reasons first."""
    form = constraint(fields, _json_schema(request))
    if form is not None and starts_inside and model.formats.reasoning is not None:
        form.begins_after = REASONING_PARSERS[model.formats.reasoning].closing
    return form


def _json_schema(request: chat_pb2.ChatRequest) -> str | None:
    if is_forced(request):
        return forced_schema(request)
    if not request.HasField("response_format"):
        return None
    answer_format = request.response_format
    if answer_format.type == options_pb2.ResponseFormat.TYPE_JSON_SCHEMA:
        return answer_format.schema_json
    if answer_format.type == options_pb2.ResponseFormat.TYPE_JSON_OBJECT:
        return ANY_JSON_OBJECT
    return None
