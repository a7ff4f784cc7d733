"""GgufFile: valid files are read back whole, damaged ones give a clear error and nothing else."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from servicers.local.config import ModelFileError
from servicers.local.gguf import GgufFile
from tests.examples import examples
from tests.unit.servicers.local.gguf_files import gguf_bytes, write_gguf

METADATA = {
    "general.architecture": "llama",
    "a.number": 7,
    "a.flag": True,
    "a.ratio": 0.5,
    "words": ["", "héllo", "東京"],
    "numbers": [3, -1, 2],
}
MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


def whole() -> bytes:
    return gguf_bytes(METADATA, {"a": (MATRIX.shape, 0, MATRIX.tobytes()), "b": ((5,), 1, b"\0<" * 5)})


def test_metadata_and_tensors_come_back(tmp_path):
    (tmp_path / "m.gguf").write_bytes(whole())
    file = GgufFile(tmp_path / "m.gguf")
    assert list(file.metadata["numbers"]) == METADATA["numbers"]
    assert {key: file.metadata[key] for key in METADATA if key != "numbers"} == {
        key: content for key, content in METADATA.items() if key != "numbers"
    }
    np.testing.assert_array_equal(file.floats("a"), MATRIX)
    np.testing.assert_array_equal(file.floats("b"), np.ones(5, np.float32))


@examples(38, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keep=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused(tmp_path, keep):
    data = whole()
    (tmp_path / "cut.gguf").write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ModelFileError, match=r"truncated|not a GGUF|cannot read"):
        GgufFile(tmp_path / "cut.gguf")


@examples(75, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, len(whole()) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused_but_never_crashes(tmp_path, place, byte):
    data = bytearray(whole())
    data[place] = byte
    (tmp_path / "odd.gguf").write_bytes(data)
    try:
        file = GgufFile(tmp_path / "odd.gguf")
    except ModelFileError:
        return
    for name in file.tensors:
        file.floats(name)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 something else", "not a GGUF file"),
        (gguf_bytes({}, {}, version=1), "version 1"),
        (gguf_bytes({}, {"w": ((32,), 17, bytes(64))}), "tensor w has type IQ2_XS; supported: F32"),
        (gguf_bytes({}, {"w": ((32,), 999, bytes(64))}), "tensor w has type number 999"),
        (gguf_bytes({}, {"w": ((33,), 8, bytes(68))}), "rows of tensor w have 33 elements"),
        (gguf_bytes({"general.alignment": 0}, {}), "general.alignment is 0"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, data, message):
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(ModelFileError, match=message):
        GgufFile(tmp_path / "m.gguf")


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(ModelFileError, match=r"nowhere\.gguf"):
        GgufFile(tmp_path / "nowhere.gguf")


def test_tensors_start_at_multiples_of_the_alignment(tmp_path):
    arrays = {name: np.full(3, i, np.float32) for i, name in enumerate("abc")}
    file = GgufFile(write_gguf(tmp_path / "m.gguf", {}, arrays))
    for name, array in arrays.items():
        np.testing.assert_array_equal(file.floats(name), array)
        assert file.tensors[name].offset % 32 == 0
