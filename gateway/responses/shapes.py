"""JSON shape of a request for a response. Items, tools and formats are looked at in smg/responses, for both fronts."""

from __future__ import annotations

from typing import Annotated, Any, Required

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from gateway.openai.shapes import FIRST, Count, Int32, Int64, Texts

_STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


@with_config(_STRICT)
class ReasoningShape(TypedDict, total=False):
    """How to reason."""

    effort: str | None
    summary: str | None
    generate_summary: str | None


@with_config(_STRICT)
class ResponseStreamOptionsShape(TypedDict, total=False):
    """What a stream carries. Accepted: nothing is obfuscated here."""

    include_obfuscation: bool | None


@with_config(_STRICT)
class ConversationShape(TypedDict, total=False):
    """A conversation by its id."""

    id: Required[str]


@with_config(_STRICT)
class ResponseShape(TypedDict, total=False):
    """Body of POST /v1/responses. A member that is not here is refused."""

    model: Required[str]
    input: Required[str | Annotated[list[dict[str, Any]], FIRST]]
    instructions: str | None
    max_output_tokens: Count | None
    max_tool_calls: Count | None
    temperature: float | None
    top_p: float | None
    top_logprobs: Count | None
    stream: bool | None
    stream_options: ResponseStreamOptionsShape | None
    store: bool | None
    tools: Annotated[list[dict[str, Any]], FIRST] | None
    tool_choice: str | dict[str, Any] | None
    parallel_tool_calls: bool | None
    previous_response_id: str | None
    conversation: str | ConversationShape | None
    reasoning: ReasoningShape | None
    text: dict[str, Any] | None
    include: Texts | None
    metadata: dict[str, Any] | None
    user: str | None
    background: bool | None
    service_tier: str | None
    truncation: str | None
    prompt: dict[str, Any] | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    safety_identifier: str | None
    context_management: Annotated[list[Any], FIRST] | dict[str, Any] | None
    request_id: str | None
    priority: Int64 | None
    top_k: Int32 | None
    min_p: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    stop: str | Texts | None


RESPONSE = TypeAdapter(ResponseShape)
