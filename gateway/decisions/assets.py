"""Images by reference: every asset is checked and used, and what it stands for in a text is found, longest first.

No served model reads images yet. A use in the state is refused with its reason, one in a question fails that question:
moved into the state it would change the answers of the others.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, cast

from gateway.decisions.images import MAX_IMAGE_BYTES, checked_image
from gateway.decisions.question_form import texts_of
from gateway.openai.explain import shown
from smg.errors import DecisionsRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.bodies.multipart import Part

MAX_ASSETS = 128
MAX_REFERENCE_BYTES = 1024
MAX_REFERENCES_BYTES = 65_536
_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)
_ENCODED_MORE = 4 / 3


class Assets:
    """The assets of one request, all of them sound images.

    Attributes:
        references: by which they are used.
        unused: those that no text has used so far.
    """

    def __init__(self, references: Sequence[str] = ()) -> None:
        self.references = tuple(references)
        self.unused = set(references)
        longest_first = sorted(references, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if references else None

    def uses_in(self, value: Any) -> int:
        """How often assets stand in the strings of a JSON value; those are used then."""
        if self._pattern is None:
            return 0
        count = 0
        for text in texts_of(value):
            for match in self._pattern.finditer(text):
                self.unused.discard(match[0])
                count += 1
        return count

    def refuse_unused(self) -> None:
        """Refuse assets that nothing uses.

        Raises:
            DecisionsRefused: there is one.
        """
        if self.unused:
            raise DecisionsRefused(
                f"{len(self.unused)} of {len(self.references)} assets stand in no text of the request; each must",
                reason="asset_unreferenced",
                param="assets",
            )


def read_assets(value: Any, parts: Sequence[Part]) -> Assets:
    """Read the member `assets`, and the parts of a multipart body but the first.

    Raises:
        DecisionsRefused: an asset is malformed, a part belongs to none or to several, an image is refused.
    """
    unclaimed: dict[str, Part] = {}
    for part in parts:
        if part.name in unclaimed:
            raise DecisionsRefused(f"two parts are named {part.name[:60]!r}", reason="asset_malformed")
        unclaimed[part.name] = part
    references: list[str] = []
    if value is not None:
        if not isinstance(value, dict) or not value:
            raise _malformed("assets", "an object with at least one asset", cast("object", value))
        if len(cast("dict[str, Any]", value)) > MAX_ASSETS:
            # Every text is searched for all of them.
            raise DecisionsRefused(
                f"assets has {len(cast('dict[str, Any]', value))} entries; at most {MAX_ASSETS} are allowed",
                reason="asset_malformed",
                limit=MAX_ASSETS,
                param="assets",
            )
        for reference, asset in cast("dict[str, Any]", value).items():
            _check_reference(reference)
            references.append(reference)
            checked_image(_bytes(asset, f"assets.{reference[:60]}", unclaimed), f"assets.{reference[:60]}")
    if sum(len(each.encode()) for each in references) > MAX_REFERENCES_BYTES:
        raise DecisionsRefused(
            f"the references of all assets have more than {MAX_REFERENCES_BYTES} bytes",
            reason="asset_malformed",
            limit=MAX_REFERENCES_BYTES,
            param="assets",
        )
    if unclaimed:
        names = ", ".join(repr(name[:60]) for name in list(unclaimed)[:5])
        raise DecisionsRefused(f"no asset claims the part {names}", reason="asset_unreferenced")
    return Assets(references)


def check_images(value: Any, where: str) -> int:
    """Check the member `images`: base64 data URLs. Returns how many there are.

    Raises:
        DecisionsRefused: one is malformed.
    """
    if value is None:
        return 0
    if not isinstance(value, list):
        raise _malformed(where, "an array of data URLs", value)
    images = cast("list[Any]", value)
    for number, url in enumerate(images):
        place = f"{where}[{number}]"
        match = _DATA_URL.match(url) if isinstance(url, str) else None
        if match is None:
            raise _malformed(place, "a base64 data URL of an image", url)
        checked_image(_decoded(url[match.end() :], place), place)
    return len(images)


def refuse_media(images: int, videos: Any, where: str = "") -> None:
    """Refuse what no served model reads.

    Raises:
        DecisionsRefused: there are images or videos.
    """
    if videos is not None and not isinstance(videos, list):
        raise _malformed(f"{where}videos", "an array of data URLs", videos)
    if videos:
        raise DecisionsRefused(
            "the model reads no videos", reason="video_unsupported", param=f"{where}videos"
        )
    if images:
        raise DecisionsRefused(
            "the model reads no images", reason="image_unsupported", param=f"{where}images"
        )


def _check_reference(reference: str) -> None:
    size = len(reference.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= MAX_REFERENCE_BYTES:
        raise DecisionsRefused(
            f"a reference of assets has {size} bytes; allowed are 1 to {MAX_REFERENCE_BYTES}",
            reason="asset_malformed",
            limit=MAX_REFERENCE_BYTES,
            param="assets",
        )


def _bytes(asset: Any, where: str, unclaimed: dict[str, Part]) -> bytes:
    if not isinstance(asset, dict):
        raise _malformed(where, "an object", asset)
    members = cast("dict[str, Any]", asset)
    _refuse_unknown(members, ("type", "data_base64", "part", "format"), where)
    if members.get("type") != "image":
        raise _malformed(f"{where}.type", "'image'", members.get("type"))
    name = members.get("part")
    if name is not None:
        part = unclaimed.pop(name, None) if isinstance(name, str) else None
        if part is None:
            raise DecisionsRefused(
                f"{where}.part is {shown(name)}; there is no such part, or another asset has it",
                reason="asset_malformed",
            )
        return part.data
    text = members.get("data_base64")
    if not isinstance(text, str):
        raise _malformed(where, "an asset with data_base64, or with part in a multipart body", text)
    return _decoded(text, where)


def _refuse_unknown(members: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    unknown = [each[:60] for each in members if each not in known]
    if unknown:
        raise DecisionsRefused(f"{where} does not take {unknown[:10]}", reason="asset_malformed")


def _decoded(text: str, where: str) -> bytes:
    if len(text) > MAX_IMAGE_BYTES * _ENCODED_MORE + 4:
        raise DecisionsRefused(
            f"{where} has more than {MAX_IMAGE_BYTES} bytes", reason="image_too_large", limit=MAX_IMAGE_BYTES
        )
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DecisionsRefused(f"{where} is not base64", reason="image_malformed") from error


def _malformed(where: str, allowed: str, value: Any) -> DecisionsRefused:
    return DecisionsRefused(f"{where} is {shown(value)}; it must be {allowed}", param=where)
