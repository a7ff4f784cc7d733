"""Makes the preparer of media that the settings describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.egress.guard import EgressGuard
from smg.media.fetch import MediaFetcher
from smg.media.preparer import MediaPreparer
from smg.media.process import MediaProcesses
from smg.media.values import MediaLimits

if TYPE_CHECKING:
    from smg.media.preparer import TokenizerSource
    from smg.settings.media import MediaSettings


def make_preparer(settings: MediaSettings, files: TokenizerSource) -> MediaPreparer:
    """No process yet; the first image starts one.

    Args:
        settings: bounds and rules.
        files: gets the files of models.
    """
    guard = EgressGuard(
        "media URL",
        allows_private=settings.media_private_addresses == "allow",
        allowed_hosts=settings.media_allowed_hosts,
        schemes=settings.media_schemes,
    )
    limits = MediaLimits(
        max_items=settings.media_max_items,
        max_bytes=settings.media_max_bytes,
        max_request_bytes=settings.media_max_request_bytes,
        max_pixels=settings.media_max_pixels,
        fetch_timeout_s=settings.media_fetch_timeout_secs,
        max_redirects=settings.media_max_redirects,
        process_timeout_s=settings.media_process_timeout_secs,
        processes=settings.media_processes,
        max_preparing=settings.media_max_preparing,
        cache_bytes=settings.media_cache_bytes,
    )
    return MediaPreparer(files, MediaFetcher(guard, limits), MediaProcesses(limits), limits)
