"""Turns text into ids with `tokenizers`, the library that defines what is right here, with control tokens as plain text.

A tokenizer object is switched once, at load: from then on the spelling of a control token is encoded as the text it is.
Added tokens that are no control tokens (runs of blanks, HTML tags in some vocabularies) keep their ids.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson
from tokenizers import AddedToken
from tokenizers import Tokenizer as HfTokenizer

from smg.errors import InvalidRequest
from smg.prompt.packed import pack_ids

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from smg.prompt.control import ControlToken


_UNKNOWN = "\U0010fffd"  # a character that no vocabulary has


def open_reference(path: Path) -> HfTokenizer:
    """Load tokenizer.json as it is, but for truncation and padding, which are other people's business.

    Raises:
        ValueError: the file is missing or is no tokenizer.
    """
    try:
        reference = HfTokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception
        msg = f"{path} is not a tokenizer that can be read: {error}"
        raise ValueError(msg) from error
    reference.no_truncation()
    reference.no_padding()
    return reference


def without_start_prefix(path: Path) -> HfTokenizer | None:
    """The same tokenizer for text that is not at the start of the prompt; None where that makes no difference.

    Some SentencePiece families put a space before the very first text only (`prepend_scheme: first`).
    """
    definition = orjson.loads(path.read_bytes())
    changed = False
    for part in _pre_tokenizers(definition.get("pre_tokenizer")):
        if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
            changed = True
    return HfTokenizer.from_str(orjson.dumps(definition).decode()) if changed else None


def _pre_tokenizers(pre_tokenizer: dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    if pre_tokenizer is None:
        return []
    return pre_tokenizer.get("pretokenizers", [pre_tokenizer])


def encode_ids(reference: HfTokenizer, text: str) -> list[int]:
    """Ids of a text without what the post-processor adds. Lets other threads run, which encode() does not."""
    return reference.encode_batch_fast([text], add_special_tokens=False)[0].ids


class PlainEncoder:
    """Encodes text as text: no spelling in it becomes a control token. Safe to use from several threads."""

    def __init__(self, reference: HfTokenizer, controls: Iterable[ControlToken]) -> None:
        """Take over `reference` and switch it; nobody else may use it afterwards.

        Raises:
            ValueError: this version of `tokenizers` gives another id to a token that is added again.
        """
        self._reference = reference
        controls = list(controls)
        # Only special tokens can be switched off, so the other control tokens are made special.
        markup = [_as_special(control) for control in controls if not control.is_special]
        reference.add_special_tokens(markup)  # pyright: ignore[reportUnknownMemberType] - a bare list in its stub
        reference.encode_special_tokens = True
        moved = [control.text for control in controls if reference.token_to_id(control.text) != control.id]
        if moved:
            msg = f"cannot switch off the control tokens {moved} of this tokenizer"
            raise ValueError(msg)
        # A Unigram model may build a token from its spelling; the unknown token it may build from anything.
        ids = {control.id for control in controls} - set(encode_ids(reference, _UNKNOWN))
        self._leaks = frozenset(
            i for control in controls for i in encode_ids(reference, control.text) if i in ids
        )
        openers = "".join(sorted({re.escape(control.text[0]) for control in controls}))
        self._after_opener = re.compile(f"(?<=[{openers}])" if openers else "(?!)")

    def encode(self, text: str) -> bytes:
        """Ids as unsigned 32-bit little-endian.

        Raises:
            InvalidRequest: the text has a lone surrogate, which no UTF-8 can say.
        """
        try:
            ids = encode_ids(self._reference, text)
        except (UnicodeEncodeError, TypeError) as error:
            raise not_unicode(text) from error
        if self._leaks and not self._leaks.isdisjoint(ids):
            ids = self._encode_parts(self._after_opener.split(text))
            if not self._leaks.isdisjoint(ids):  # spelled in a way that the normalizer undid
                ids = self._encode_parts(text)
        return pack_ids(ids)

    def encode_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids, and for each the code points of the text that it stands for.

        Raises:
            InvalidRequest: the text has a lone surrogate.
        """
        try:
            found = self._reference.encode_batch([text], add_special_tokens=False)[0]
        except (UnicodeEncodeError, TypeError) as error:
            raise not_unicode(text) from error
        return found.ids, found.offsets

    def _encode_parts(self, parts: Iterable[str]) -> list[int]:
        return [i for part in parts if part for i in encode_ids(self._reference, part)]


def _as_special(control: ControlToken) -> AddedToken:
    return AddedToken(
        control.text,
        single_word=control.single_word,
        lstrip=control.strips_left,
        rstrip=control.strips_right,
        normalized=control.normalized,
        special=True,
    )


def not_unicode(text: str) -> InvalidRequest:
    """What is said about a text with half of a character in it."""
    position = next((n for n, char in enumerate(text) if "\ud800" <= char <= "\udfff"), 0)
    return InvalidRequest(
        f"the text has a lone surrogate at character {position}, which is not valid Unicode"
    )


class WholeEncoder:
    """Encodes a rendered prompt in one piece, control tokens counting. Safe to use from several threads."""

    def __init__(self, reference: HfTokenizer) -> None:
        self._reference = reference

    def encode(self, text: str) -> bytes:
        """Packed ids.

        Raises:
            InvalidRequest: the text has a lone surrogate.
        """
        try:
            return pack_ids(encode_ids(self._reference, text))
        except (UnicodeEncodeError, TypeError) as error:
            raise not_unicode(text) from error
