"""Puts responses that follow each other into order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smg.storage.records import StoredResponse


def join_chain(last_id: str, found: Mapping[str, StoredResponse], longest: int) -> list[StoredResponse]:
    """The chain that ends with a response, the oldest first.

    Args:
        last_id: the last.
        found: by id, all that it follows, as far as they are there.
        longest: most responses; of a longer chain the newest.

    Raises:
        NotFound: the last, or one that it follows, is not there; `param` has its id.
    """
    chain: dict[str, StoredResponse] = {}
    wanted = last_id
    # A response is stored when it has ended, so none can follow a later one; a store that was meddled with might say so.
    while wanted and wanted not in chain and len(chain) < longest:
        response = found.get(wanted)
        if response is None:
            what = "" if wanted == last_id else f", which {next(reversed(chain))!r} follows,"
            raise NotFound(f"response {wanted!r}{what} is not stored", param=wanted)
        chain[wanted] = response
        wanted = response.previous_id
    return list(reversed(chain.values()))
