"""Assets: every rule about references, parts and use."""

import base64

import pytest

from gateway.bodies.multipart import Part
from gateway.decisions.assets import read_assets
from smg.errors import DecisionsRefused
from tests.unit.gateway.decisions.test_images import image

PNG = image("PNG")
DATA = base64.b64encode(PNG).decode()
INLINE = {"type": "image", "data_base64": DATA}


def refusal(value, parts=()):
    with pytest.raises(DecisionsRefused) as caught:
        read_assets(value, parts).refuse_unused()
    return caught.value.reason


def test_uses_are_found_in_texts_longest_reference_first_and_never_in_keys():
    assets = read_assets({"<r>": INLINE, "<r>2": INLINE}, ())
    assert assets.uses_in({"<r>": ["see <r>2 and <r>2", 4, None]}) == 2
    assert assets.unused == {"<r>"}
    assert assets.uses_in("<r><r>") == 2
    assets.refuse_unused()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"<r>": INLINE}, "asset_unreferenced"),
        ({"": INLINE}, "asset_malformed"),
        ({"r" * 1025: INLINE}, "asset_malformed"),
        ({f"{n}{'r' * 1000}": INLINE for n in range(66)}, "asset_malformed"),
        ({"<r>": {**INLINE, "size": 1}}, "asset_malformed"),
        ({"<r>": {"type": "image", "data_base64": "@@"}}, "image_malformed"),
        ({"<r>": {"type": "image", "data_base64": "AAAA"}}, "image_malformed"),
        ({"<r>": {"type": "image", "part": "nowhere"}}, "asset_malformed"),
        ({"<r>": {"type": "video", "data_base64": DATA}}, ""),
        ({"<r>": {"type": "image"}}, ""),
        ({}, ""),
        ([], ""),
    ],
)
def test_what_is_refused_has_its_reason(value, reason):
    assert refusal(value) == reason


def test_each_part_is_claimed_once():
    part = Part("asset-0", "application/octet-stream", PNG)
    claim = {"type": "image", "part": "asset-0", "data_base64": "ignored"}
    assert read_assets({"<r>": claim}, [part]).references == ("<r>",)
    assert refusal({"<r>": claim, "<s>": claim}, [part]) == "asset_malformed"
    assert refusal(None, [part]) == "asset_unreferenced"
    assert refusal({"<r>": claim}, [part, part]) == "asset_malformed"
