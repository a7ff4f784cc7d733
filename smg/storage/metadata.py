"""Merges a conversation's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping


def merged(before: Mapping[str, str], changes: Mapping[str, str | None], most: int) -> dict[str, str]:
    """What it is with the changes; None deletes.

    Raises:
        InvalidRequest: it has more than `most` pairs.
    """
    pairs = {name: text for name, text in {**before, **changes}.items() if text is not None}
    if len(pairs) > most:
        raise InvalidRequest(
            f"metadata would have {len(pairs)} properties; at most {most} are allowed", param="metadata"
        )
    return pairs
