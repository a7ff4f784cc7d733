"""media_fault: media that break the contract are refused by field, value and what is allowed."""

import pytest

from servicers.media_checks import media_fault
from smg_proto.engine.v1 import work_pb2

PIXELS = work_pb2.Tensor(name="pixel_values", dtype="float32", shape=(2, 1), data=bytes(8))


def medium(**fields):
    values = {
        "modality": "image",
        "offset": 1,
        "length": 2,
        "placeholder_id": 9,
        "tensors": [PIXELS],
        "digest": bytes(32),
    }
    return work_pb2.Medium(**{**values, **fields})


def fault(*media, modalities=("image",)):
    return media_fault(work_pb2.Generate(prompt_ids=bytes(4 * 6), media=media), modalities)


def tensor(**fields):
    values = {"name": "pixel_values", "dtype": "float32", "shape": (2, 1), "data": bytes(8)}
    return work_pb2.Tensor(**{**values, **fields})


def test_sound_media_pass():
    assert fault(medium(), medium(offset=3, length=3)) == ""


@pytest.mark.parametrize(
    ("media", "named"),
    [
        ([medium(modality="video")], "media[0].modality is 'video'; allowed: image"),
        ([medium(length=0)], "media[0] takes 0 tokens"),
        ([medium(offset=5)], "media[0] takes 2 tokens from 5"),
        (
            [medium(), medium(offset=2)],
            "media[1] takes 2 tokens from 2 on; allowed: at least one, from 3 to 6",
        ),
        ([medium(digest=b"x")], "media[0].digest has 1 bytes"),
        ([medium(tensors=[])], "media[0].tensors has 0 entries"),
        ([medium(tensors=[PIXELS, PIXELS])], "different names, sorted"),
        ([medium(tensors=[tensor(dtype="complex64")])], "dtype 'complex64'"),
        ([medium(tensors=[tensor(shape=(3, 1))])], "has 8 bytes; its shape and dtype take 12"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(media, named):
    assert named in fault(*media)


def test_a_model_of_text_only_takes_no_media():
    assert "text only" in fault(medium(), modalities=())
