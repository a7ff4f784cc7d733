"""JSON shapes of the request bodies: which members there are and of which type. Ranges are checked in smg.

Members that we do not model are ignored here; the body's own bytes stay available for workers that speak HTTP.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Role = Literal["system", "developer", "user", "assistant", "tool", "function", "root"]


class Shape(BaseModel):
    """Base: no coercion between types, unknown members ignored, no infinite numbers."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())


class FunctionCallShape(Shape):
    """The function of an earlier call."""

    name: str
    arguments: str | None = None


class ToolCallShape(Shape):
    """An earlier call."""

    id: str = ""
    type: str = "function"
    function: FunctionCallShape


class MessageShape(Shape):
    """A message of a conversation."""

    role: Role
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[ToolCallShape] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tools: Any = None


class FunctionShape(Shape):
    """A function that may be called."""

    name: str
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None


class ToolShape(Shape):
    """A tool."""

    type: str
    function: FunctionShape


class StreamOptionsShape(Shape):
    """What a stream carries."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ThinkingShape(Shape):
    """Thinking control."""

    type: Literal["enabled", "disabled", "adaptive"] | None = None
    effort: str | None = None
    keep: str | None = None
    clear_thinking: bool | None = None


class JsonSchemaShape(Shape):
    """A schema with its name. `schema` may be any JSON here; that it is an object is a rule, not a shape."""

    name: str
    schema_: Any = Field(default=None, alias="schema")
    strict: bool | None = None
    description: str | None = None


class ResponseFormatShape(Shape):
    """Form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaShape | None = None


class SamplingShape(Shape):
    """Members that chat and text completions share; they become SamplingOptions."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    seed: int | None = None
    sampling_seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    logit_bias: dict[str, float] | None = None
    ignore_eos: bool | None = None
    no_stop_trim: bool | None = None
    skip_special_tokens: bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    lora_path: str | None = None


class ChatShape(SamplingShape):
    """Body of POST /v1/chat/completions."""

    model: str
    messages: list[MessageShape]
    stream: bool | None = None
    stream_options: StreamOptionsShape | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[ToolShape] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormatShape | None = None
    reasoning_effort: str | int | float | None = None
    thinking: ThinkingShape | None = None
    continue_final_message: bool | None = None
    separate_reasoning: bool | None = None
    stream_reasoning: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_hidden_states: bool | None = None
    rid: str | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    modalities: list[str] | None = None
    return_audio: bool | None = None


class CompletionShape(SamplingShape):
    """Body of POST /v1/completions."""

    model: str
    prompt: str | list[str] | list[int] | list[list[int]]
    stream: bool | None = None
    stream_options: StreamOptionsShape | None = None
    n: int | None = None
    best_of: int | None = None
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    json_schema: str | None = None
    return_hidden_states: bool | None = None
    rid: str | None = None
    user: str | None = None
