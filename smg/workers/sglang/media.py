"""Turns the media of a prompt into SGLang's: one tensor of a name for all images, one after the other along the first axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg_grpc_proto.generated import sglang_scheduler_pb2 as sglang_pb2

    from smg_proto.engine.v1 import work_pb2

_PIXELS = "pixel_values"


def put_media(target: sglang_pb2.MultimodalInputs, media: Sequence[work_pb2.Medium]) -> None:
    """Write media into a request of SGLang's.

    Raises:
        InvalidRequest: there are other media than images, or arrays of different images cannot be joined.
    """
    for medium in media:
        if medium.modality != "image":
            raise InvalidRequest(
                f"media of kind {medium.modality!r}: SGLang's protocol is sent images only",
                code="multimodal_not_supported",
            )
        target.modalities.append(medium.modality)
        target.mm_placeholders.add(offset=medium.offset, length=medium.length)
    target.im_token_id = media[0].placeholder_id
    for name in sorted({tensor.name for medium in media for tensor in medium.tensors}):
        field = target.pixel_values if name == _PIXELS else target.model_specific_tensors[name]
        _join(field, name, [tensor for medium in media for tensor in medium.tensors if tensor.name == name])


def _join(target: sglang_pb2.TensorData, name: str, tensors: Sequence[work_pb2.Tensor]) -> None:
    first = tensors[0]
    if any(each.dtype != first.dtype or each.shape[1:] != first.shape[1:] for each in tensors):
        shapes = ", ".join(str(list(each.shape)) for each in tensors)
        raise InvalidRequest(
            f"the images of the request have {name} of shapes {shapes}, which SGLang's protocol cannot take together; "
            "send images of one size",
            code="multimodal_not_supported",
        )
    target.dtype = first.dtype
    target.shape.extend((sum(each.shape[0] for each in tensors), *first.shape[1:]))
    target.data = b"".join(each.data for each in tensors)
