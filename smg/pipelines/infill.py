"""Builds the prompt with which a model fills in the text between a prefix and a suffix.

Formats: Bavarian et al., Efficient Training of Language Models to Fill in the Middle, 2022, prefix first; the tokens
as the model families name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import InvalidRequest
from smg.pipelines.prompt_limits import check_context, most_tokens
from smg.prompt.builder import TokenPrompt
from smg.prompt.packed import ID_BYTES, pack_ids

if TYPE_CHECKING:
    from smg.pipelines.catalog import ServedModel
    from smg.prompt.tokenizer import Tokenizer

# Before the prefix, between prefix and suffix, and after the suffix.
FILL_TOKENS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
)


def fill_tokens(tokenizer: Tokenizer) -> tuple[int, int, int] | None:
    """Ids of the model's three tokens for filling in; None where it has none of a known kind."""
    table = tokenizer.vocabulary.bytes_with_specials
    for before, between, after in FILL_TOKENS:
        if all(map(tokenizer.has_token, (before, between, after))):
            return table.index(before.encode()), table.index(between.encode()), table.index(after.encode())
    return None


def infill_prompt(model: ServedModel, prefix: TokenPrompt, suffix: str) -> TokenPrompt:
    """The prompt for what stands between; its text is the prefix's.

    Args:
        model: the model.
        prefix: as a prompt of its own.
        suffix: text; no control token is read in it.

    Raises:
        ContextTooLong: all of it together is longer than the context.
        InvalidRequest: the model cannot fill in; or the suffix is no text.
    """
    tokenizer = model.builder.tokenizer
    tokens = fill_tokens(tokenizer)
    if tokens is None:
        raise InvalidRequest(
            f"suffix is set, and the model {model.id} cannot fill in before a text: its vocabulary has no tokens for it; "
            "leave suffix out",
            param="suffix",
        )
    before, between, after = tokens
    start = model.builder.text("").ids
    rest = model.builder.text(suffix, max_tokens=most_tokens(model.card)).ids.removeprefix(start)
    # Ids of the client's own may do without what the tokenizer puts at the start.
    start = start if prefix.ids.startswith(start) else b""
    opened = prefix.ids.removeprefix(start)
    ids = b"".join((start, pack_ids([before]), opened, pack_ids([between]), rest, pack_ids([after])))
    check_context(model.card, len(ids) // ID_BYTES)
    return TokenPrompt(ids, len(ids) // ID_BYTES, prefix.text)
