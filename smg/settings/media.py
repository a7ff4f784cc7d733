"""Settings of media in prompts: where they may be fetched from, and what they may cost."""

from __future__ import annotations

from typing import Literal

from smg.settings.fields import Section, setting

_MIB = 1024 * 1024


class MediaSettings(Section):
    """Where images may come from, and what they may cost."""

    media_private_addresses: Literal["allow", "refuse"] = setting(
        "refuse", "Whether an image's URL may lead to private and loopback addresses."
    )
    media_allowed_hosts: tuple[str, ...] = setting(
        (),
        "Hosts that alone an image's URL may name; '.example.com' allows all below it. Default: any.",
        metavar="HOST",
    )
    media_schemes: tuple[Literal["https", "http"], ...] = setting(
        ("https", "http"), "Schemes that an image's URL may have, beside data.", metavar="SCHEME"
    )
    media_max_items: int = setting(16, "Most images in one request.", ge=1)
    media_max_bytes: int = setting(
        20 * _MIB, "Most bytes of one image, as it is sent or fetched.", metavar="BYTES", ge=1024
    )
    media_max_request_bytes: int = setting(
        64 * _MIB, "Most bytes of all images of one request.", metavar="BYTES", ge=1024
    )
    media_max_pixels: int = setting(50_000_000, "Most pixels of one image: its width times its height.", ge=1)
    media_fetch_timeout_secs: float = setting(10.0, "Longest time to fetch one image, in seconds.", gt=0)
    media_max_redirects: int = setting(3, "Most redirects that are followed for one image.", ge=0)
    media_process_timeout_secs: float = setting(
        60.0, "Longest time to decode and process the images of one request, in seconds.", gt=0
    )
    media_processes: int = setting(
        1, "Processes that decode and process images. They start with the first image.", ge=1
    )
    media_max_preparing: int = setting(
        8, "Requests whose images are fetched and processed at a time; others wait.", ge=1
    )
    media_cache_bytes: int = setting(
        128 * _MIB, "Memory for processed images that come again. 0 keeps none.", metavar="BYTES", ge=0
    )
