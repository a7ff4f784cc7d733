"""Puts prepared media into a prompt: their tokens in place of the template's markers, and what engines and caches need of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.errors import InvalidRequest
from smg.media.values import MediaPart
from smg.prompt.packed import ID_BYTES, pack_ids
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from smg.media.values import PreparedMedium
    from smg.prompt.builder import TokenPrompt
    from smg_proto.chat.v1 import message_pb2

NOT_SUPPORTED = "multimodal_not_supported"
# Of a model that takes no media at all, whatever engine it runs on.
NO_PLACE = "process_messages_failed"
# The digest of a medium, as its tokens spell it in keys of caches: this many different ones, so far apart.
_KEY_WORDS, _KEY_STRIDE = 4, 8
_KEY_BIT = 0x80

_MODALITIES = {"image_url": "image", "video_url": "video", "audio_url": "audio", "input_audio": "audio"}


class MediaTaker:
    """Gathers the media parts of one request, in the order in which they stand.

    Attributes:
        found: the parts so far.
    """

    def __init__(self, modalities: Callable[[], Collection[str]], model: str) -> None:
        """Args: modalities tells which kinds some worker of the model takes; asked only where there is a part."""
        self._modalities = modalities
        self._model = model
        self.found: list[MediaPart] = []

    def take(self, kind: str, part: message_pb2.ContentPart, name: str) -> dict[str, str]:
        """What a chat template reads of a media part.

        Args:
            kind: which of the part's members is set.
            part: the part.
            name: where it stands, for messages.

        Raises:
            InvalidRequest: no worker of the model takes media of its kind.
        """
        modality = _MODALITIES[kind]
        modalities = self._modalities()
        if modality not in modalities:
            taken = ", ".join(("text", *modalities)) if modalities else "text only"
            raise InvalidRequest(
                f"{name} is of type {kind}; the workers of {self._model} take {taken}",
                code=NOT_SUPPORTED if modalities else NO_PLACE,
                param=name,
            )
        self.found.append(MediaPart(name, modality, getattr(part, kind).url))
        return {"type": modality}


NO_MEDIA = MediaTaker(tuple[str, ...], "this model")
"""Refuses all."""


class PlacedMedia(NamedTuple):
    """A prompt with media in it.

    Attributes:
        prompt: its ids, those of the media included.
        key_ids: the same where media are told apart: what caches go by.
        media: for the engine.
    """

    prompt: TokenPrompt
    key_ids: bytes
    media: Sequence[work_pb2.Medium]


def place(prompt: TokenPrompt, parts: Sequence[MediaPart], prepared: Sequence[PreparedMedium]) -> PlacedMedia:
    """Put media into a prompt.

    Args:
        prompt: with one marker for each medium.
        parts: as the request has them.
        prepared: in step.

    Raises:
        InvalidRequest: the chat template has not written one marker for each medium.
    """
    pieces = _between_markers(prompt.ids, pack_ids([prepared[0].marker_id]))
    if len(pieces) != len(parts) + 1:
        raise InvalidRequest(
            f"the chat template of the model puts {len(pieces) - 1} media into the prompt, the messages have "
            f"{len(parts)}",
            code=NOT_SUPPORTED,
            param=parts[0].name,
        )
    ids, keys = bytearray(pieces[0]), bytearray(pieces[0])
    media: list[work_pb2.Medium] = []
    for part, medium, piece in zip(parts, prepared, pieces[1:], strict=True):
        media.append(_medium(part, medium, len(ids) // ID_BYTES))
        ids += pack_ids(medium.ids)
        keys += _key(medium)
        ids += piece
        keys += piece
    whole = prompt._replace(ids=bytes(ids), tokens=len(ids) // ID_BYTES)
    return PlacedMedia(whole, bytes(keys), media)


def _between_markers(ids: bytes, marker: bytes) -> list[bytes]:
    pieces: list[bytes] = []
    start = at = 0
    while (at := ids.find(marker, at)) >= 0:
        if at % ID_BYTES:
            # Bytes of two neighbours that look like the marker.
            at += 1
            continue
        pieces.append(ids[start:at])
        start = at = at + ID_BYTES
    return [*pieces, ids[start:]]


def _medium(part: MediaPart, medium: PreparedMedium, offset: int) -> work_pb2.Medium:
    return work_pb2.Medium(
        modality=part.modality,
        offset=offset,
        length=len(medium.ids),
        placeholder_id=medium.placeholder_id,
        tensors=[
            work_pb2.Tensor(name=each.name, dtype=each.dtype, shape=each.shape, data=each.data)
            for each in medium.tensors
        ],
        digest=medium.digest,
    )


def _key(medium: PreparedMedium) -> bytes:
    """What stands for a medium's tokens where media are told apart: as smg.engine.v1.Medium says."""
    words = [
        bytes((*medium.digest[at : at + 3], medium.digest[at + 3] | _KEY_BIT))
        for at in range(0, _KEY_WORDS * _KEY_STRIDE, _KEY_STRIDE)
    ]
    return b"".join(words[n % _KEY_WORDS] for n in range(len(medium.ids)))
