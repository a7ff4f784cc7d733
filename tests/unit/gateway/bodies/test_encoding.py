"""decoded(): one layer, bounded before and after, and never more than the bound in memory."""

import gzip
import zlib

import pytest
import zstandard

from gateway.bodies.encoding import decoded
from smg.errors import DecisionsRefused, DecisionsTooLarge, UnsupportedMediaType

BODY = b'{"state": "' + b"a word or two " * 2000 + b'"}'
LIMIT = 1 << 20


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("", BODY),
        ("identity", BODY),
        ("gzip", gzip.compress(BODY, mtime=0)),
        ("X-GZIP", gzip.compress(BODY, mtime=0)),
        ("gzip", gzip.compress(BODY[:100], mtime=0) + gzip.compress(BODY[100:], mtime=0)),
        ("zstd", zstandard.compress(BODY)),
        ("zstd", zstandard.compress(BODY[:100]) + zstandard.compress(BODY[100:])),
    ],
)
def test_what_was_compressed_comes_back(coding, data):
    assert decoded(data, coding, LIMIT) == BODY


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, zstd", "gzip, gzip", "zstd,identity"])
def test_another_coding_or_more_layers_are_refused(coding):
    with pytest.raises(UnsupportedMediaType, match="one layer of gzip"):
        decoded(gzip.compress(BODY, mtime=0), coding, LIMIT)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_small_body_that_becomes_large_is_given_up_at_the_bound(coding):
    data = (gzip.compress if coding == "gzip" else zstandard.compress)(b"a" * (50 << 20))
    assert len(data) < LIMIT
    with pytest.raises(DecisionsTooLarge) as caught:
        decoded(data, coding, LIMIT)
    assert caught.value.limit == LIMIT


def test_a_body_over_the_bound_is_refused_as_sent():
    with pytest.raises(DecisionsTooLarge):
        decoded(b"x" * (LIMIT + 1), "", LIMIT)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize(
    "data",
    [b"", b"{}", gzip.compress(BODY, mtime=0)[:50], zstandard.compress(BODY)[:30]],
    ids=["empty", "json", "cut gzip", "cut zstd"],
)
def test_what_is_not_of_its_coding_is_malformed(coding, data):
    with pytest.raises(DecisionsRefused) as caught:
        decoded(data, coding, LIMIT)
    assert caught.value.reason == "encoding_malformed"


def test_a_zstd_window_over_8_mib_is_refused():
    parameters = zstandard.ZstdCompressionParameters(
        window_log=24, enable_ldm=False, format=zstandard.FORMAT_ZSTD1
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    writer = compressor.compressobj()
    data = writer.compress(zlib.crc32(b"x").to_bytes(4, "big") * 6_000_000) + writer.flush()
    with pytest.raises(DecisionsRefused) as caught:
        decoded(data, "zstd", 1 << 30)
    assert caught.value.reason == "encoding_malformed"
