"""Checks that a prompt has tokens, and not more than the model's context, before it is sent anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import ContextTooLong, InvalidRequest
from smg.prompt.builder import TokenPrompt
from smg.prompt.packed import pack_ids

if TYPE_CHECKING:
    from smg_proto.chat.v1 import options_pb2
    from smg_proto.engine.v1 import card_pb2


# A prompt a little too long is counted to its end, so that the client learns by how much; one far longer is not.
COUNTED_CONTEXTS = 4


def most_tokens(card: card_pb2.ModelCard) -> int | None:
    """Length at which tokenizing a prompt is given up; None for a model without a limit."""
    return card.context_length * COUNTED_CONTEXTS or None


def never_empty(card: card_pb2.ModelCard, prompt: TokenPrompt) -> TokenPrompt:
    """The prompt, or where it has no tokens the one token with which this model's texts begin, if there is one."""
    if prompt.tokens or not card.HasField("bos_token_id"):
        return prompt
    return TokenPrompt(pack_ids([card.bos_token_id]), 1, prompt.text)


def check_context(card: card_pb2.ModelCard, prompt_tokens: int) -> None:
    """Refuse a prompt without tokens, and one that is longer than the context. A model may have no limit.

    Raises:
        InvalidRequest: no tokens; an engine has nothing to begin with.
        ContextTooLong: with both numbers.
    """
    if not prompt_tokens:
        raise InvalidRequest(
            "the prompt has no tokens; at least one is needed, and this model has none to begin with",
            param="prompt",
        )
    limit = card.context_length
    if limit and prompt_tokens > limit:
        raise ContextTooLong(
            f"This model's maximum context length is {limit} tokens. However, your request has "
            f"{prompt_tokens} input tokens. Please reduce the length of the input.",
        )


def check_output(card: card_pb2.ModelCard, sampling: options_pb2.SamplingOptions) -> None:
    """Refuse a limit of output tokens that is longer than the context. A model may have no limit.

    Raises:
        ContextTooLong: with both numbers.
    """
    is_new = sampling.HasField("max_completion_tokens")
    name = "max_completion_tokens" if is_new else "max_tokens"
    asked = sampling.max_completion_tokens if is_new else sampling.max_tokens
    limit = card.context_length
    if limit and asked > limit:
        raise ContextTooLong(
            f"This model's maximum context length is {limit} tokens. However, {name} is {asked}. "
            f"Please ask for at most {limit}.",
        )
