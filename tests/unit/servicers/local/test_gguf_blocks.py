"""Block formats: every byte pattern becomes the weights that the format's own package reads from it."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from servicers.local.gguf_blocks import BLOCK_FORMATS, TYPE_NAMES

QUANTISED = [kind for kind in BLOCK_FORMATS if TYPE_NAMES[kind] not in ("F32", "F16")]


def random_blocks(kind: int, count: int) -> np.ndarray:
    """Any bytes are valid but for the float16 scales, which must be finite: their top exponent bit is cleared."""
    size = BLOCK_FORMATS[kind].size_bytes
    blocks = np.random.default_rng(kind).integers(0, 256, (count, size), dtype=np.uint8)
    scale_at = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}.get(TYPE_NAMES[kind], (0, 2))
    for place in scale_at:
        blocks[:, place + 1 : place + 2] &= 0b10111111
    return blocks


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: TYPE_NAMES[kind])
def test_weights_equal_those_of_the_formats_own_package(kind):
    blocks = random_blocks(kind, 200)
    expected = quants.dequantize(blocks, GGMLQuantizationType(kind))
    actual = BLOCK_FORMATS[kind].to_floats(blocks)
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(actual.reshape(-1), expected.reshape(-1))


def test_plain_floats_are_read_as_they_are():
    numbers = np.array([0.0, -1.5, 65504.0, 1e-7], dtype=np.float32)
    halves = numbers.astype(np.float16)
    np.testing.assert_array_equal(BLOCK_FORMATS[0].to_floats(numbers.view(np.uint8).reshape(-1, 4)), numbers)
    np.testing.assert_array_equal(BLOCK_FORMATS[1].to_floats(halves.view(np.uint8).reshape(-1, 2)), halves)
