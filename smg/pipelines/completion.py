"""A text completion request from prompts to answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from smg.errors import Unsupported
from smg.pipelines.answer import Answer
from smg.pipelines.chat import INLINE_PROMPT_CHARS
from smg.pipelines.choice import Choice
from smg.pipelines.engine_call import Work
from smg.pipelines.prompt_limits import check_context, most_tokens
from smg.pipelines.sampling import constraint, engine_sampling, text_options
from smg.validation.completion import validate_completion
from smg.validation.rules import set_fields
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
    from smg_proto.chat.v1 import completion_pb2


class CompletionPipeline:
    """Answers text completion requests. Choices are numbered prompt by prompt, n for each."""

    def __init__(self, catalog: ModelCatalog, admission: Admission, engine_call: EngineCall) -> None:
        self._catalog = catalog
        self._admission = admission
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
        async with self._admission.permit():
            validate_completion(request)
            _refuse_unserved(request)
            model = await self._catalog.resolve(request.model)
            prompts = await completion_prompts(model, request)
            for prompt in prompts:
                check_context(model.card, prompt.tokens)
            answer = Answer(context.answer_id(request.rid), meter.created, request.model, sink)
            work = Work(
                meter.route,
                model.id,
                prompts[0].ids,
                lambda: _build(request, context, model, prompts, answer),
            )
            with meter.measure(model.id, answer):
                await self._engine_call.run(work, answer, context)


async def completion_prompts(
    model: ServedModel, request: completion_pb2.CompletionRequest
) -> list[TokenPrompt]:
    """Tokenize the prompts; long ones in a thread.

    Raises:
        InvalidRequest: a token id that the model does not have.
    """

    def tokenize() -> list[TokenPrompt]:
        builder = model.builder
        return [
            builder.text(prompt.text, max_tokens=most_tokens(model.card))
            if prompt.WhichOneof("kind") == "text"
            else builder.ids(prompt.token_ids.ids)
            for prompt in request.prompts
        ]

    if request.ByteSize() <= INLINE_PROMPT_CHARS:
        return tokenize()
    return await asyncio.get_running_loop().run_in_executor(None, tokenize)


def _refuse_unserved(request: completion_pb2.CompletionRequest) -> None:
    for name, is_set in (
        ("echo", request.echo),
        ("suffix", request.HasField("suffix")),
        ("best_of", request.HasField("best_of")),
        ("logprobs", request.HasField("logprobs")),
    ):
        if is_set:
            raise Unsupported(f"{name} is not served on text completions yet", param=name)


def _build(
    request: completion_pb2.CompletionRequest,
    context: RequestContext,
    model: ServedModel,
    prompts: Sequence[TokenPrompt],
    answer: Answer,
) -> tuple[Sequence[work_pb2.Generate], Sequence[Choice]]:
    fields = set_fields(request.sampling)
    options = text_options(fields, logprobs=False)
    stream = request.stream or "stop" in fields
    form = constraint(fields, request.json_schema if request.HasField("json_schema") else None)
    count = request.n or 1
    requests: list[work_pb2.Generate] = []
    choices: list[Choice] = []
    for prompt_index, prompt in enumerate(prompts):
        for index in range(count):
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
            requests.append(generate)
            number = prompt_index * count + index
            choices.append(
                Choice(number, answer, model.builder.tokenizer, options, prompt_index=prompt_index)
            )
    return requests, choices
