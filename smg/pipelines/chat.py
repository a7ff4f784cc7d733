"""A chat request from message to answer, for every front: HTTP, gRPC and what is built on chat."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from smg.errors import InvalidRequest
from smg.parsers.harmony import FINAL_HEADER
from smg.parsers.reasoning import REASONING_PARSERS
from smg.parsers.tools import reads_schemas
from smg.pipelines.answer import Answer
from smg.pipelines.chat_prompt import chat_prompt
from smg.pipelines.engine_call import Work
from smg.pipelines.media import PlacedMedia, place
from smg.pipelines.native_calls import native_constraint, native_kind
from smg.pipelines.off_loop import INLINE_BYTES, in_thread
from smg.pipelines.output import PLAIN, OutputForm
from smg.pipelines.plan import GenerationPlan
from smg.pipelines.prompt_limits import check_context, check_output
from smg.pipelines.sampling import constraint, text_options
from smg.pipelines.tools import forced_schema, forced_schemas, is_forced, tool_schemas, usable_tools
from smg.profiles import profile_for
from smg.validation.chat import validate_chat
from smg.validation.rules import set_fields
from smg_proto.chat.v1 import options_pb2
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from smg.media.preparer import MediaPreparer
    from smg.pipelines.catalog import ModelCatalog, ServedModel
    from smg.pipelines.chat_prompt import ChatPrompt
    from smg.pipelines.engine_call import EngineCall
    from smg.pipelines.meter import RequestMeter
    from smg.pipelines.sinks import AnswerSink
    from smg.profiles import Adapted, Profile
    from smg.types.context import RequestContext, TraceHeaders
    from smg_proto.chat.v1 import chat_pb2

ANY_JSON_OBJECT = '{"type":"object"}'


class ChatPipeline:
    """Answers chat requests."""

    def __init__(self, catalog: ModelCatalog, engine_call: EngineCall, media: MediaPreparer) -> None:
        self._catalog = catalog
        self._engine_call = engine_call
        self._media = media

    async def run(
        self,
        request: chat_pb2.ChatRequest,
        context: RequestContext,
        sink: AnswerSink,
        meter: RequestMeter,
        profile: Profile | None = None,
    ) -> None:
        """Answer a request into a sink. Returns when the answer has ended; cancelling aborts it.

        Args:
            request: stays as it is.
            context: of the caller.
            sink: gets the answer.
            meter: told how it went.
            profile: whose rules hold; None for those of the model's name.

        Raises:
            SmgError: the request is refused or failed before the first event; nothing went to the sink.
        """
        # Reading the JSON texts of a long request takes long.
        is_long = request.ByteSize() > INLINE_BYTES
        profile = profile or profile_for(request.model)
        adapted = await in_thread(_checked, request, profile) if is_long else _checked(request, profile)
        request = adapted.request
        model = await self._catalog.resolve(request.model)
        prompted = await chat_prompt(model, adapted.prompt, shows_message_tools=profile.shows_message_tools)
        placed = await self._placed(model, prompted)
        prompt = placed.prompt
        check_context(model.card, prompt.tokens)
        if profile.bounds_output:
            check_output(model.card, request.sampling)
        answer = Answer(context.answer_id(request.rid), meter.created, model.id, sink, model.formats.label)
        enforced = self._catalog.enforced(model.id) if model.formats.holds_native else ()
        arguments = (model, request, meter.trace_headers, prompted, profile, enforced)
        plan = await in_thread(_plan, *arguments) if is_long else _plan(*arguments)
        if placed.media:
            plan = plan._replace(media=placed.media)
        work = Work(
            meter.route,
            model.id,
            meter.arrived_at,
            placed.key_ids,
            lambda: plan.attempt((prompt,), answer),
            plan.constraint_kind,
            model.card.tokenizer_sha256,
            request.rid,
            tuple({medium.modality for medium in placed.media}) if placed.media else (),
        )
        with meter.measure(model.id, answer):
            await self._engine_call.run(work, answer, context)

    async def _placed(self, model: ServedModel, prompted: ChatPrompt) -> PlacedMedia:
        """The prompt with its media in their places."""
        if not prompted.media:
            return PlacedMedia(prompted.prompt, prompted.prompt.ids, ())
        prepared = await self._media.prepare(model.id, model.card.tokenizer_sha256, prompted.media)
        return await in_thread(place, prompted.prompt, prompted.media, prepared)


def _checked(request: chat_pb2.ChatRequest, profile: Profile) -> Adapted:
    """The request under its profile, every rule kept.

    Raises:
        InvalidRequest: one or more are broken.
    """
    adapted = profile.adapt(request)
    validate_chat(adapted.request)
    _refuse_other_outputs(request)
    return adapted


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
    model: ServedModel,
    request: chat_pb2.ChatRequest,
    trace: TraceHeaders,
    prompted: ChatPrompt,
    profile: Profile,
    enforced: Sequence[Sequence[str]],
) -> GenerationPlan:
    fields = set_fields(request.sampling) if request.HasField("sampling") else {}
    form = output_form(model, request, starts_inside=prompted.starts_inside, scans_calls=profile.scans_calls)
    native = _native_constraint(model, request, enforced)
    if native is not None:
        form = replace(form, forced=False)
    logprobs = None
    if request.logprobs:
        logprobs = work_pb2.LogprobsOptions(output=True, top_k=request.top_logprobs)
    return GenerationPlan(
        model,
        _with_stops(fields, model.builder.stop_ids),
        text_options(fields, logprobs=request.logprobs, form=form),
        choices=request.n or 1,
        stream=request.stream,
        constraint=_constraint(
            model, request, fields, native, starts_inside=prompted.starts_inside, thinks=prompted.thinks
        ),
        logprobs=logprobs,
        reasoning=prompted.thinks,
        trace=trace,
    )


def output_form(
    model: ServedModel, request: chat_pb2.ChatRequest, *, starts_inside: bool, scans_calls: bool = False
) -> OutputForm:
    """What the answer's text is made of.

    Args:
        model: the model.
        request: what was asked.
        starts_inside: the answer begins inside reasoning.
        scans_calls: there may be calls though the request declares no tools.
    """
    separates = not request.HasField("separate_reasoning") or request.separate_reasoning
    reasoning = model.formats.reasoning if separates or model.formats.is_harmony else None
    tools = usable_tools(request)
    has_tools = bool(tools) or (scans_calls and not request.tools and not _forbids_calls(request))
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
        separates=separates,
        is_open=request.continue_final_message and request.messages[-1].role == "assistant",
    )


def _with_stops(fields: Mapping[str, Any], stop_ids: Sequence[int]) -> Mapping[str, Any]:
    """The engine's options: it may not know every token that ends an answer of this model."""
    if not stop_ids:
        return fields
    return {**fields, "stop_token_ids": [*fields.get("stop_token_ids", ()), *stop_ids]}


def _forbids_calls(request: chat_pb2.ChatRequest) -> bool:
    return request.tool_choice.mode == options_pb2.ToolChoice.MODE_NONE


def _native_constraint(
    model: ServedModel, request: chat_pb2.ChatRequest, enforced: Sequence[Sequence[str]]
) -> work_pb2.Constraint | None:
    """A forced choice in the model's own format; None where that cannot be, or is not wanted."""
    if not enforced or not is_forced(request):
        return None
    tools = model.formats.tools
    kind = native_kind(tools, model.builder.tokenizer, enforced)
    if kind is None:
        return None
    is_single = bool(request.tool_choice.name) or (
        request.HasField("parallel_tool_calls") and not request.parallel_tool_calls
    )
    return native_constraint(kind, tools, forced_schemas(request), is_single=is_single)


def _constraint(
    model: ServedModel,
    request: chat_pb2.ChatRequest,
    fields: Mapping[str, Any],
    native: work_pb2.Constraint | None,
    *,
    starts_inside: bool,
    thinks: bool,
) -> work_pb2.Constraint | None:
    """The form that the output must have; after the reasoning, where the model reasons first."""
    form = native or constraint(fields, _json_schema(request))
    if form is not None and model.formats.is_harmony:
        # Reasoning comes in a channel of its own. A call that is forced, and a message that goes on, are in theirs.
        form.begins_after = FINAL_HEADER if thinks else ""
    elif form is not None and starts_inside and model.formats.reasoning is not None:
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
