"""A chat request from message to answer, for every front: HTTP, gRPC and what is built on chat."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from smg.errors import InvalidRequest, Unsupported
from smg.pipelines.answer import Answer
from smg.pipelines.choice import Choice
from smg.pipelines.engine_call import Work
from smg.pipelines.messages import template_messages, template_tools, template_variables
from smg.pipelines.prompt_limits import check_context, most_tokens
from smg.pipelines.sampling import constraint, engine_sampling, text_options
from smg.validation.chat import validate_chat
from smg.validation.rules import set_fields
from smg_proto.chat.v1 import options_pb2
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.admission import Admission
    from smg.pipelines.catalog import ModelCatalog, ServedModel
    from smg.pipelines.engine_call import EngineCall
    from smg.pipelines.meter import RequestMeter
    from smg.pipelines.sinks import AnswerSink
    from smg.prompt.builder import TokenPrompt
    from smg.types.context import RequestContext
    from smg_proto.chat.v1 import chat_pb2

# Rendering and tokenizing so much text takes about a millisecond; more of it leaves the event loop.
INLINE_PROMPT_CHARS = 48_000
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
            validate_chat(request)
            _refuse_other_outputs(request)
            _refuse_forced_calls(request)
            model = await self._catalog.resolve(request.model)
            prompt = await chat_prompt(model, request)
            check_context(model.card, prompt.tokens)
            answer = Answer(context.answer_id(request.rid), meter.created, request.model, sink)
            work = Work(
                meter.route, model.id, prompt.ids, lambda: _build(request, context, model, prompt, answer)
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


def _refuse_forced_calls(request: chat_pb2.ChatRequest) -> None:
    """Calls are not parsed yet: who insists on one must not get prose."""
    modes = options_pb2.ToolChoice
    if request.tool_choice.mode in (modes.MODE_REQUIRED, modes.MODE_FUNCTION):
        raise Unsupported("tool_choice asks for a call; calls are not served yet", param="tool_choice")


async def chat_prompt(model: ServedModel, request: chat_pb2.ChatRequest) -> TokenPrompt:
    """Render and tokenize a conversation; long ones in a thread.

    Raises:
        InvalidRequest: the conversation cannot be rendered; the template's own message where it gives one.
    """

    def render() -> TokenPrompt:
        return model.builder.chat(
            template_messages(request.messages),
            tools=template_tools(request.tools),
            add_generation_prompt=not request.continue_final_message,
            continue_final_message=request.continue_final_message,
            variables=_variables(request),
            max_tokens=most_tokens(model.card),
        )

    if request.ByteSize() <= INLINE_PROMPT_CHARS:
        return render()
    return await asyncio.get_running_loop().run_in_executor(None, render)


def _variables(request: chat_pb2.ChatRequest) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    effort = request.thinking.effort if request.thinking.HasField("effort") else request.reasoning_effort
    if effort:
        variables["reasoning_effort"] = effort
    return variables | template_variables(request.chat_template_kwargs_json)


def _build(
    request: chat_pb2.ChatRequest,
    context: RequestContext,
    model: ServedModel,
    prompt: TokenPrompt,
    answer: Answer,
) -> tuple[Sequence[work_pb2.Generate], Sequence[Choice]]:
    fields = set_fields(request.sampling)
    options = text_options(fields, logprobs=request.logprobs)
    # Stop strings are matched here, so their tokens must come as they are made, not all at the end.
    stream = request.stream or "stop" in fields
    form = constraint(fields, _json_schema(request.response_format))
    requests: list[work_pb2.Generate] = []
    choices: list[Choice] = []
    for index in range(request.n or 1):
        generate = work_pb2.Generate(
            prompt_ids=prompt.ids,
            sampling=engine_sampling(fields, choice_index=index),
            stream=stream,
            model=model.id,
            lora=fields.get("lora_path", ""),
            request_id=answer.id,
            traceparent=context.traceparent,
        )
        if form is not None:
            generate.constraint.CopyFrom(form)
        if request.logprobs:
            generate.logprobs.output = True
            generate.logprobs.top_k = request.top_logprobs
        requests.append(generate)
        choices.append(Choice(index, answer, model.builder.tokenizer, options))
    return requests, choices


def _json_schema(answer_format: options_pb2.ResponseFormat) -> str | None:
    if answer_format.type == options_pb2.ResponseFormat.TYPE_JSON_SCHEMA:
        return answer_format.schema_json
    if answer_format.type == options_pb2.ResponseFormat.TYPE_JSON_OBJECT:
        return ANY_JSON_OBJECT
    return None
