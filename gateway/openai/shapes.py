"""JSON shapes of the request bodies: which members there are and of which type. Ranges are checked in smg.

A shape is a dict with the members that were sent, checked: half the cost of an object with every member. Members that
we do not model are left out; the body's own bytes stay available for workers that speak HTTP. Every list ends its check
at the first wrong item: a body of nothing but faults must not cost more than a good one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

Role = Literal["system", "developer", "user", "assistant", "tool", "function", "root"]
# The width of a number belongs to its type: a negative count is no count, as a fraction is none.
Count = Annotated[int, Field(ge=0, le=2**32 - 1)]
Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
# Ends the check of a list or object at its first wrong item.
FIRST = Field(fail_fast=True)
Texts = Annotated[list[str], FIRST]
TokenIds = Annotated[list[Count], FIRST]


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

    id: str | None
    type: str | None
    function: Required[FunctionCallShape]


@with_config(_STRICT)
class MessageShape(TypedDict, total=False):
    """A message of a conversation."""

    role: Required[Role]
    content: str | Annotated[list[dict[str, Any]], FIRST] | None
    name: str | None
    tool_calls: Annotated[list[ToolCallShape], FIRST] | None
    tool_call_id: str | None
    reasoning_content: str | None
    reasoning: str | None
    refusal: str | None
    tools: Any


@with_config(_STRICT)
class FunctionShape(TypedDict, total=False):
    """A function that may be called. `parameters` may be any JSON here; that it is an object is a rule."""

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
class NamedShape(TypedDict, total=False):
    """The function that must be called, in the API's older form."""

    name: Required[str]


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
    schema: Required[Any]
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
    top_k: Int32 | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    max_completion_tokens: Count | None
    max_tokens: Count | None
    min_tokens: Count | None
    seed: Int64 | None
    sampling_seed: Int64 | None
    stop: str | Texts | None
    stop_token_ids: TokenIds | None
    logit_bias: Annotated[dict[str, float], FIRST] | None
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
    messages: Required[Annotated[list[MessageShape], FIRST]]
    stream: bool | None
    stream_options: StreamOptionsShape | None
    n: Count | None
    logprobs: bool | None
    top_logprobs: Count | None
    tools: Annotated[list[ToolShape], FIRST] | None
    tool_choice: str | dict[str, Any] | None
    functions: Annotated[list[FunctionShape], FIRST] | None
    function_call: str | NamedShape | None
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
    modalities: Texts | None
    return_audio: bool | None


@with_config(_STRICT)
class CompletionShape(SamplingShape, total=False):
    """Body of POST /v1/completions."""

    model: Required[str]
    prompt: Required[str | Texts | TokenIds | Annotated[list[TokenIds], FIRST]]
    stream: bool | None
    stream_options: StreamOptionsShape | None
    n: Count | None
    best_of: Count | None
    logprobs: Count | None
    echo: bool | None
    suffix: str | None
    json_schema: str | None
    return_hidden_states: bool | None
    rid: str | None
    user: str | None


CHAT = TypeAdapter(ChatShape)
COMPLETION = TypeAdapter(CompletionShape)
