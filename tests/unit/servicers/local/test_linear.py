"""Linear kernels: every precision multiplies by the same weights, within its own rounding."""

from pathlib import Path

import numpy as np
import pytest
import torch

from servicers.local.gguf_blocks import BLOCK_FORMATS, Q4_0, Q4_1, split_4bit
from servicers.local.int4 import INT4_ROWS, Quants, with_int4
from servicers.local.linear import FEW_ROWS, Precision, choose_precision, make_linear
from servicers.local.model import Model, load_model
from tests.unit.servicers.local.gguf_files import gguf_arrays, gguf_bytes, gguf_metadata
from tests.unit.servicers.local.tiny_model import TINY, random_weights, reference_hidden, run

CPU = torch.device("cpu")
FAST_BFLOAT16_CPU = Precision(torch.bfloat16, torch.bfloat16, torch.bfloat16, half_kernel=True)
OTHER_CPU_OR_GPU = Precision(torch.bfloat16, torch.bfloat16, torch.bfloat16)
FLOAT32_ACTIVATIONS = Precision(
    torch.float32, torch.float16, torch.float32, half_kernel=True, dense_kernel=False
)
EVERY = {
    "float32": (Precision(torch.float32, torch.float32, torch.float32), 1e-6),
    "fast bfloat16": (FAST_BFLOAT16_CPU, 0.01),
    "plain bfloat16": (OTHER_CPU_OR_GPU, 0.01),
    "float16 weights": (FLOAT32_ACTIVATIONS, 1e-3),
}


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("rows", [1, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_are_right_for_few_and_many_rows(name, rows, has_bias):
    precision, tolerance = EVERY[name]
    generator = torch.Generator().manual_seed(rows)
    weight, bias = torch.randn(48, 64, generator=generator), torch.randn(48, generator=generator)
    x = torch.randn(rows, 64, generator=generator).to(precision.activations)
    product = make_linear(weight, bias if has_bias else None, precision, CPU)(x)
    assert product.dtype == precision.activations
    assert error(product, x.double() @ weight.double().T + (bias if has_bias else 0)) < tolerance


@pytest.mark.parametrize("name", EVERY)
def test_a_model_computes_the_same_at_every_precision(name):
    precision, tolerance = EVERY[name]
    weights = random_weights(TINY)
    model = Model.from_state_dict(TINY, weights, dtype=torch.bfloat16, precision=precision)
    ids = [(7 * i) % TINY.vocab_size for i in range(70)]
    cache = model.new_cache(2, 80)
    whole = run(model, cache, (0, 0, ids))[0]
    expected = reference_hidden(TINY, weights, ids)
    assert error(whole, expected) < 4 * tolerance
    run(model, cache, (1, 0, ids[:69]))
    (last,) = run(model, cache, (1, 69, ids[69:]))
    assert error(last[0], expected[-1]) < 4 * tolerance
    assert error(model.label_logits(last, [3, 4]), model.logits(last)[:, 3:5].double()) < 4 * tolerance


def test_float32_stays_float32_and_other_dtypes_are_refused():
    assert choose_precision(torch.float32, CPU) == EVERY["float32"][0]
    assert choose_precision(torch.bfloat16, CPU) in {FAST_BFLOAT16_CPU, OTHER_CPU_OR_GPU, FLOAT32_ACTIVATIONS}
    assert choose_precision(torch.bfloat16, torch.device("cuda")) == OTHER_CPU_OR_GPU
    with pytest.raises(
        ValueError, match=r"torch\.int8 is not served; known: torch\.float32, torch\.bfloat16"
    ):
        choose_precision(torch.int8, CPU)


def blocks_of(kind: int, rows: int, columns: int) -> np.ndarray:
    count = rows * columns // 32
    blocks = np.random.default_rng(kind).integers(
        0, 256, (count, BLOCK_FORMATS[kind].size_bytes), dtype=np.uint8
    )
    # float16 scales near 0.01 keep the sums ordinary.
    blocks[:, 1] = 0x21
    if kind == Q4_1:
        blocks[:, 3] = 0xA1
    return blocks


def quants_of(blocks: np.ndarray, kind: int, rows: int) -> Quants:
    split = split_4bit(kind, blocks)
    assert split is not None
    values, scales, minima = (torch.from_numpy(part) for part in split)
    return Quants(values.view(rows, -1), scales.view(rows, -1), minima.view(rows, -1))


@pytest.mark.parametrize("kind", [Q4_0, Q4_1])
def test_splitting_blocks_keeps_every_weight(kind):
    blocks = blocks_of(kind, 16, 64)
    parts = quants_of(blocks, kind, 16)
    whole = parts.values * parts.scales.repeat_interleave(32, 1) + parts.minima.repeat_interleave(32, 1)
    np.testing.assert_allclose(
        whole.numpy(), BLOCK_FORMATS[kind].to_floats(blocks).reshape(16, 64), rtol=1e-6
    )


@pytest.mark.parametrize("kind", [Q4_0, Q4_1])
@pytest.mark.parametrize("rows", [1, INT4_ROWS, INT4_ROWS + 1])
def test_the_int4_kernel_multiplies_by_the_weights_of_the_file(kind, rows):
    upper, lower = blocks_of(kind, 16, 64), blocks_of(kind, 32, 64)[::-1].copy()
    weight = BLOCK_FORMATS[kind].to_floats(np.concatenate([upper, lower])).reshape(48, 64)
    dense = make_linear(torch.from_numpy(weight), None, OTHER_CPU_OR_GPU, CPU)
    product = with_int4([quants_of(upper, kind, 16), quants_of(lower, kind, 32)], dense)
    assert product is not dense
    x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert error(product(x), x.double() @ torch.from_numpy(weight).double().T) < 0.01


def test_matrices_that_the_int4_kernel_does_not_take_keep_their_product():
    dense = make_linear(torch.zeros(8, 64), None, OTHER_CPU_OR_GPU, CPU)
    assert with_int4([None], dense) is dense
    assert with_int4([quants_of(blocks_of(Q4_0, 8, 64), Q4_0, 8)], dense) is dense


@pytest.mark.parametrize(("dtype", "device"), [(torch.float32, "cpu"), (torch.bfloat16, "cuda")])
def test_int4_is_for_bfloat16_on_a_cpu(tmp_path, dtype, device):
    with pytest.raises(ValueError, match="int4 needs dtype bfloat16 on a CPU"):
        load_model(tmp_path, dtype=dtype, device=device, int4=True)


def q4_1_model(folder: Path) -> Path:
    """A GGUF file whose projections are 4-bit, rows of q and k interleaved as in real files."""
    weights = random_weights(TINY)
    arrays = gguf_arrays(TINY, weights, interleaved=True)
    tensors = {}
    for name, array in arrays.items():
        if array.ndim == 2 and name.startswith("blk."):
            tensors[name] = (array.shape, Q4_1, blocks_of(Q4_1, *array.shape).tobytes())
        else:
            tensors[name] = (array.shape, 0, array.tobytes())
    path = folder / "m.gguf"
    path.write_bytes(gguf_bytes(gguf_metadata(TINY, "llama"), tensors))
    return path


def test_a_4bit_file_computes_the_same_with_and_without_the_int4_kernel(tmp_path):
    path = q4_1_model(tmp_path)
    exact = load_model(path, dtype=torch.float32)
    fast = load_model(path, dtype=torch.bfloat16, int4=True)
    for rows in (1, INT4_ROWS, INT4_ROWS + 1):
        ids = [(7 * i) % TINY.vocab_size for i in range(rows)]
        expected = run(exact, exact.new_cache(1, 8), (0, 0, ids))[0]
        assert error(run(fast, fast.new_cache(1, 8), (0, 0, ids))[0], expected.double()) < 0.03
