"""JSON shapes of the request bodies: which members there are and of which type. Ranges are checked in smg.

A shape is a dict with the members that were sent, checked: half the cost of an object with every member. Members that
we do not model are left out; the body's own bytes stay available for workers that speak HTTP.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import ConfigDict, FailFast, TypeAdapter, with_config
from typing_extensions import TypedDict

Role = Literal["system", "developer", "user", "assistant", "tool", "function", "root"]


# No coercion between types, unknown members left out, no infinite numbers.
_STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


@with_config(_STRICT)
class FunctionCallShape(TypedDict, total=False):
    """The function of an earlier call."""

    name: Required[str]
    arguments: str | None


@with_config(_STRICT)
class ToolCallShape(TypedDict, total=False):
    """An earlier call."""

    id: str
    type: str
    function: Required[FunctionCallShape]


@with_config(_STRICT)
class MessageShape(TypedDict, total=False):
    """A message of a conversation."""

    role: Required[Role]
    content: str | list[dict[str, Any]] | None
    name: str | None
    tool_calls: list[ToolCallShape] | None
    tool_call_id: str | None
    reasoning_content: str | None
    reasoning: str | None
    tools: Any


@with_config(_STRICT)
class FunctionShape(TypedDict, total=False):
    """A function that may be called."""

    name: Required[str]
    description: str | None
    parameters: Any
    strict: bool | None


@with_config(_STRICT)
class ToolShape(TypedDict, total=False):
    """A tool."""

    type: Required[str]
    function: Required[FunctionShape]


@with_config(_STRICT)
class StreamOptionsShape(TypedDict, total=False):
    """What a stream carries."""

    include_usage: bool | None
    continuous_usage_stats: bool | None


@with_config(_STRICT)
class ThinkingShape(TypedDict, total=False):
    """Thinking control."""

    type: Literal["enabled", "disabled", "adaptive"] | None
    effort: str | None
    keep: str | None
    clear_thinking: bool | None


@with_config(_STRICT)
class JsonSchemaShape(TypedDict, total=False):
    """A schema with its name. `schema` may be any JSON here; that it is an object is a rule, not a shape."""

    name: Required[str]
    schema: Any
    strict: bool | None
    description: str | None


@with_config(_STRICT)
class ResponseFormatShape(TypedDict, total=False):
    """Form of an answer."""

    type: Required[Literal["text", "json_object", "json_schema"]]
    json_schema: JsonSchemaShape | None


@with_config(_STRICT)
class SamplingShape(TypedDict, total=False):
    """Members that chat and text completions share; they become SamplingOptions."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    max_completion_tokens: int | None
    max_tokens: int | None
    min_tokens: int | None
    seed: int | None
    sampling_seed: int | None
    stop: str | list[str] | None
    stop_token_ids: list[int] | None
    logit_bias: dict[str, float] | None
    ignore_eos: bool | None
    no_stop_trim: bool | None
    skip_special_tokens: bool | None
    regex: str | None
    ebnf: str | None
    lora_path: str | None


@with_config(_STRICT)
class ChatShape(SamplingShape, total=False):
    """Body of POST /v1/chat/completions."""

    model: Required[str]
    messages: Required[Annotated[list[MessageShape], FailFast()]]
    stream: bool | None
    stream_options: StreamOptionsShape | None
    n: int | None
    logprobs: bool | None
    top_logprobs: int | None
    tools: list[ToolShape] | None
    tool_choice: str | dict[str, Any] | None
    parallel_tool_calls: bool | None
    response_format: ResponseFormatShape | None
    reasoning_effort: str | int | float | None
    thinking: ThinkingShape | None
    continue_final_message: bool | None
    separate_reasoning: bool | None
    stream_reasoning: bool | None
    chat_template_kwargs: dict[str, Any] | None
    return_hidden_states: bool | None
    rid: str | None
    user: str | None
    metadata: dict[str, Any] | None
    modalities: list[str] | None
    return_audio: bool | None


@with_config(_STRICT)
class CompletionShape(SamplingShape, total=False):
    """Body of POST /v1/completions."""

    model: Required[str]
    prompt: Required[str | list[str] | list[int] | list[list[int]]]
    stream: bool | None
    stream_options: StreamOptionsShape | None
    n: int | None
    best_of: int | None
    logprobs: int | None
    echo: bool | None
    suffix: str | None
    json_schema: str | None
    return_hidden_states: bool | None
    rid: str | None
    user: str | None


CHAT = TypeAdapter(ChatShape)
COMPLETION = TypeAdapter(CompletionShape)
