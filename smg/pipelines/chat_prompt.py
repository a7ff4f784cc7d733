"""Turns a chat request into the prompt that the engine gets: messages, tools and variables through the model's template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from smg.errors import InvalidRequest
from smg.pipelines.media import MediaTaker
from smg.pipelines.messages import (
    UNSUPPORTED_PART,
    parse_object,
    template_messages,
    template_tool_choice,
    template_tools,
    template_variables,
)
from smg.pipelines.off_loop import in_thread
from smg.pipelines.prompt_limits import most_tokens
from smg.pipelines.tools import is_forced, usable_tools
from smg.prompt.harmony import BUILD_FAILED, FORCED_VARIABLE
from smg.prompt.thinking import ThinkingDecision, decide
from smg_proto.chat.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.media.values import MediaPart
    from smg.pipelines.catalog import ServedModel
    from smg.prompt.builder import KnownTemplate, TokenPrompt
    from smg_proto.chat.v1 import chat_pb2

# Rendering and tokenizing so much text takes about a millisecond; more of it leaves the event loop.
INLINE_PROMPT_CHARS = 48_000
# Templates may look at all messages for each message.
INLINE_MESSAGES = 200
_NOTHING_SAID = ThinkingDecision(None, {})


class ChatPrompt(NamedTuple):
    """A prompt.

    Attributes:
        prompt: what the engine gets.
        starts_inside: the model's output begins inside its reasoning.
        thinks: the model was told to reason, or does unless it is told not to; by its tag it shows where.
        media: parts of the messages for which the prompt has markers.
    """

    prompt: TokenPrompt
    starts_inside: bool
    thinks: bool
    media: Sequence[MediaPart] = ()


async def chat_prompt(
    model: ServedModel, request: chat_pb2.ChatRequest, *, shows_message_tools: bool = False
) -> ChatPrompt:
    """Render and tokenize a conversation; long ones in a thread.

    Args:
        model: the model.
        request: the conversation and what belongs to it.
        shows_message_tools: the template gets tools that messages declare; else they are dropped.

    Raises:
        InvalidRequest: the conversation cannot be rendered; the template's own message where it gives one.
    """
    if request.ByteSize() <= INLINE_PROMPT_CHARS and len(request.messages) <= INLINE_MESSAGES:
        return _render(model, request, shows_message_tools)
    return await in_thread(_render, model, request, shows_message_tools)


def _render(model: ServedModel, request: chat_pb2.ChatRequest, shows_message_tools: bool) -> ChatPrompt:
    tools = usable_tools(request) if request.HasField("tool_choice") else request.tools
    known = model.builder.template_for(with_tools=bool(tools))
    thinking = known.thinking
    decision = _decision(request, known)
    variables = decision.variables
    # Without a message of the assistant there is nothing to continue, so an answer is begun.
    continues = request.continue_final_message and request.messages[-1].role == "assistant"
    if model.builder.is_harmony:
        # A forced call is all that the model writes: its header ends the prompt.
        forced = request.tool_choice.name if is_forced(request) else None
        variables = {**variables, FORCED_VARIABLE: forced}
    media = MediaTaker(model.modalities, model.id)
    prompt = model.builder.chat(
        _messages(model, request, media, shows_message_tools),
        tools=template_tools(tools),
        add_generation_prompt=not continues,
        continue_final_message=continues,
        variables=variables,
        max_tokens=most_tokens(model.card),
    )
    if model.formats.is_harmony:
        return ChatPrompt(
            prompt, starts_inside=False, thinks=not (continues or is_forced(request)), media=media.found
        )
    always = model.formats.always_reasons and not continues
    if not (thinking.is_known or always):
        return ChatPrompt(prompt, starts_inside=False, thinks=False, media=media.found)
    if prompt.in_reasoning is not None:
        return ChatPrompt(prompt, prompt.in_reasoning, prompt.in_reasoning, media.found)
    thinks = (thinking.starts_inside or always) if decision.thinks is None else decision.thinks
    starts_inside = thinks and (model.formats.reasons_first or always)
    return ChatPrompt(prompt, starts_inside, thinks, media.found)


def _messages(
    model: ServedModel, request: chat_pb2.ChatRequest, media: MediaTaker, shows_tools: bool
) -> list[dict[str, Any]]:
    try:
        return template_messages(request.messages, media, shows_tools=shows_tools)
    except InvalidRequest as error:
        if not (model.builder.is_harmony and error.code == UNSUPPORTED_PART):
            raise
        raise InvalidRequest(error.message, code=BUILD_FAILED, param=error.param) from None


def _decision(request: chat_pb2.ChatRequest, known: KnownTemplate) -> ThinkingDecision:
    has = request.HasField
    if not (
        request.chat_template_kwargs_json
        or (request.tools and "tool_choice" in known.template.variables)
        or has("reasoning_effort")
        or has("thinking")
        or has("tool_choice")
        or has("response_format")
    ):
        return _NOTHING_SAID
    asked = request.thinking
    effort = asked.effort if asked.HasField("effort") else request.reasoning_effort
    explicit = template_variables(request.chat_template_kwargs_json)
    decision = decide(known.thinking, explicit, effort, asked.type)
    return decision._replace(variables={**_request_variables(request, known), **decision.variables})


def _request_variables(request: chat_pb2.ChatRequest, known: KnownTemplate) -> dict[str, Any]:
    """What a template may know of the request's tool choice and answer format, where it reads them."""
    variables: dict[str, Any] = {}
    if "tool_choice" in known.template.variables and (request.tools or request.HasField("tool_choice")):
        variables["tool_choice"] = template_tool_choice(request.tool_choice)
    if "response_format" in known.template.variables and request.HasField("response_format"):
        variables["response_format"] = _response_format(request.response_format)
    return variables


def _response_format(answer: options_pb2.ResponseFormat) -> dict[str, Any]:
    types = options_pb2.ResponseFormat
    if answer.type == types.TYPE_JSON_OBJECT:
        return {"type": "json_object"}
    if answer.type != types.TYPE_JSON_SCHEMA:
        return {"type": "text"}
    schema: dict[str, Any] = {"name": answer.name}
    if answer.HasField("description"):
        schema["description"] = answer.description
    schema["schema"] = parse_object(answer.schema_json, "response_format.json_schema.schema")
    if answer.HasField("strict"):
        schema["strict"] = answer.strict
    return {"type": "json_schema", "json_schema": schema}
