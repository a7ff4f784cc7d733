"""JSON shapes of the answers, for the document alone: what the sinks and handlers write is not checked against them at
run time. The tests hold real answers against them, closed: a member that does not stand here fails.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from gateway.openapi.failures import ChatStreamError, GatewayError, RequestError, TextStreamError

Number = Annotated[int, Field(ge=0)]
FinishReason = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(TypedDict):
    """Of the prompt's tokens."""

    cached_tokens: Number


class CompletionTokensDetails(TypedDict):
    """Of the tokens made; the last two only when the engine drafts."""

    reasoning_tokens: Number
    accepted_prediction_tokens: NotRequired[Number]
    rejected_prediction_tokens: NotRequired[Number]


class Usage(TypedDict):
    """Tokens that were read and made, over all choices."""

    prompt_tokens: Number
    completion_tokens: Number
    total_tokens: Number
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class TopLogprob(TypedDict):
    """A token that might have come."""

    token: str
    logprob: float
    bytes: list[Annotated[int, Field(ge=0, le=255)]]


class TokenLogprob(TopLogprob):
    """A token that came, and those that might have come in its place."""

    top_logprobs: list[TopLogprob]


class Logprobs(TypedDict):
    """Log-probabilities of the tokens."""

    content: list[TokenLogprob]
    refusal: None


class CalledFunction(TypedDict):
    """What is called. The arguments are JSON as the model wrote it."""

    name: str
    arguments: str


class CallAnswer(TypedDict):
    """A call that the model asks for."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AnswerMessage(TypedDict):
    """The message of a choice."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[Any]
    reasoning_content: str | None
    tool_calls: NotRequired[list[CallAnswer]]


class ChatChoice(TypedDict):
    """One answer."""

    index: Number
    message: AnswerMessage
    logprobs: Logprobs | None
    finish_reason: FinishReason
    matched_stop: NotRequired[str | int]


class ChatCompletion(TypedDict):
    """A whole chat answer."""

    id: str
    object: Literal["chat.completion"]
    created: Number
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: Literal["default"]
    service_tier: Literal["default"]


class FunctionDelta(TypedDict):
    """The name with the first piece of a call, more of the arguments with the others."""

    name: NotRequired[str]
    arguments: NotRequired[str]


class CallDelta(TypedDict):
    """A piece of a call; id and type come with its first."""

    index: Number
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


class Delta(TypedDict):
    """What is new in a choice."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    refusal: NotRequired[None]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[CallDelta]]


class ChatChunkChoice(TypedDict):
    """A piece of a choice."""

    index: Number
    delta: Delta
    logprobs: Logprobs | None
    finish_reason: FinishReason | None
    matched_stop: NotRequired[str]


class ChatChunk(TypedDict):
    """One event of a chat stream. The usage of the whole request comes last, without choices, where it is asked for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: Number
    model: str
    system_fingerprint: Literal["default"]
    choices: list[ChatChunkChoice]
    usage: NotRequired[Usage]


class TextLogprobs(TypedDict):
    """Log-probabilities in four lists, one place a token. The first token of a prompt has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[Number]


class TextChoice(TypedDict):
    """One continuation of a prompt; log-probabilities where they are asked for."""

    text: str
    index: Number
    logprobs: NotRequired[TextLogprobs]
    finish_reason: FinishReason
    matched_stop: NotRequired[str | int]


class TextCompletion(TypedDict):
    """Whole continuations of all prompts."""

    id: str
    object: Literal["text_completion"]
    created: Number
    model: str
    choices: list[TextChoice]
    usage: Usage
    system_fingerprint: Literal["default"]


class TextChunkChoice(TypedDict):
    """A piece of a continuation; log-probabilities where they are asked for."""

    index: Number
    text: str
    logprobs: NotRequired[TextLogprobs | None]
    finish_reason: FinishReason | None


class TextChunk(TypedDict):
    """One event of a text completion stream."""

    id: str
    object: Literal["text_completion"]
    created: Number
    model: str
    system_fingerprint: Literal["default"]
    choices: list[TextChunkChoice]
    usage: NotRequired[Usage]


class ModelCard(TypedDict):
    """A model that can be asked for."""

    id: str
    object: Literal["model"]
    created: Number
    owned_by: Literal["self_hosted"]


class ModelList(TypedDict):
    """The models that can be asked for, and what those can that answer questions."""

    object: Literal["list"]
    data: list[ModelCard]
    models: list[dict[str, Any]]
    limits: dict[str, Any]
    api_version: str
    systemone_schema: str


class Alive(TypedDict):
    """The gateway answers."""

    status: Literal["alive"]
    api_version: str


class Stalled(TypedDict):
    """Every engine has stood still for too long over its work."""

    status: Literal["stalled"]
    reason: str
    api_version: str


class Ready(TypedDict):
    """Some worker takes work."""

    status: Literal["ready"]
    healthy_workers: Number
    total_workers: Number


class NotReady(TypedDict):
    """No worker takes work, or the gateway shuts down."""

    status: Literal["not ready"]
    reason: str


ANSWERS: tuple[type[Any], ...] = (
    ChatCompletion,
    ChatChunk,
    TextCompletion,
    TextChunk,
    ChatStreamError,
    TextStreamError,
    RequestError,
    GatewayError,
    ModelCard,
    ModelList,
    Alive,
    Stalled,
    Ready,
    NotReady,
)
ADAPTERS: dict[str, TypeAdapter[Any]] = {answer.__name__: TypeAdapter(answer) for answer in ANSWERS}
