"""Checks a prompt against the model's context before it is sent anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import ContextTooLong

if TYPE_CHECKING:
    from smg_proto.engine.v1 import card_pb2


# A prompt a little too long is counted to its end, so that the client learns by how much; one far longer is not.
COUNTED_CONTEXTS = 4


def most_tokens(card: card_pb2.ModelCard) -> int | None:
    """Length at which tokenizing a prompt is given up; None for a model without a limit."""
    return card.context_length * COUNTED_CONTEXTS or None


def check_context(card: card_pb2.ModelCard, prompt_tokens: int) -> None:
    """Refuse a prompt that is longer than the context. A model without a limit takes everything.

    Raises:
        ContextTooLong: with both numbers.
    """
    limit = card.context_length
    if limit and prompt_tokens > limit:
        raise ContextTooLong(
            f"This model's maximum context length is {limit} tokens. However, your request has "
            f"{prompt_tokens} input tokens. Please reduce the length of the input.",
        )
