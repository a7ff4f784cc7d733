"""What passes between the parts that take care of media: a part of a request, a prepared medium, the bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class MediaPart(NamedTuple):
    """A medium as a request names it.

    Attributes:
        name: where it stands, for messages: "messages[0].content[1]".
        modality: "image", "video" or "audio".
        url: data URL, or address to fetch it from.
    """

    name: str
    modality: str
    url: str


class Tensor(NamedTuple):
    """An array of numbers, as smg.engine.v1.Tensor has it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class PreparedMedium(NamedTuple):
    """What a model's processor has made of one medium.

    Attributes:
        marker_id: token that the chat template puts where the medium belongs.
        placeholder_id: token whose places get what the model sees.
        ids: tokens that stand in the prompt instead of the marker.
        tensors: what the model sees, in the order of their names.
        digest: SHA-256 of the tensors, as the engine's contract defines it.
    """

    marker_id: int
    placeholder_id: int
    ids: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    digest: bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the numbers."""
        return sum(len(tensor.data) for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """What media may cost.

    Attributes:
        max_items: media of one request.
        max_bytes: of one medium, as it was sent or fetched.
        max_request_bytes: of all media of one request.
        max_pixels: width times height of an image, as its data has it.
        fetch_timeout_s: from the first look-up of a name to the last byte.
        max_redirects: followed for one address.
        process_timeout_s: for the work on all media of one request.
        processes: processes that decode and process.
        max_preparing: requests whose media are fetched and processed at a time; others wait.
        cache_bytes: of processed media that are kept for the next turn of their conversation.
    """

    max_items: int = 16
    max_bytes: int = 20 << 20
    max_request_bytes: int = 64 << 20
    max_pixels: int = 50_000_000
    fetch_timeout_s: float = 10.0
    max_redirects: int = 3
    process_timeout_s: float = 60.0
    processes: int = 1
    max_preparing: int = 8
    cache_bytes: int = 128 << 20
