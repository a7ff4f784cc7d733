"""Model: the same numbers as the plain formula, whatever else is in the batch and however a prompt is cut."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servicers.local.model import Model, ModelFileError, Segment
from tests.examples import examples
from tests.unit.servicers.local.tensors import assert_close
from tests.unit.servicers.local.tiny_model import LIKE_QWEN3, TINY, random_weights, reference_hidden, run

WEIGHTS = random_weights(TINY)
# Two threads wait for each other longer than they compute at this size.
torch.set_num_threads(1)
MODEL = Model.from_state_dict(TINY, WEIGHTS, dtype=torch.float32)


def ids_of(seed: int, length: int) -> list[int]:
    return torch.randint(
        0, TINY.vocab_size, (length,), generator=torch.Generator().manual_seed(seed)
    ).tolist()


LONG = ids_of(2, 300)
LONG_HIDDEN = reference_hidden(TINY, WEIGHTS, LONG)


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-4) -> None:
    assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("config", "extras"),
    [
        (TINY, {}),
        (TINY, {"biases": True}),  # Qwen2
        (LIKE_QWEN3, {"head_norms": True}),
        (dataclasses.replace(TINY, kv_heads=6), {}),  # every head its own keys
        (dataclasses.replace(TINY, kv_heads=1), {}),
    ],
)
def test_hidden_states_and_logits_equal_the_plain_formula(config, extras):
    weights = random_weights(config, **extras)
    model = Model.from_state_dict(config, weights, dtype=torch.float32)
    ids = ids_of(1, 40)
    (hidden,) = run(model, model.new_cache(1, 64), (0, 0, ids))
    expected = reference_hidden(config, weights, ids)
    close(hidden, expected)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    close(model.logits(hidden), expected @ head.double().T, 1e-3)


@examples(7)
@given(cuts=st.lists(st.integers(1, 299), max_size=4, unique=True))
def test_the_cut_of_a_prompt_does_not_change_it(cuts):
    edges = [0, *sorted(cuts), len(LONG)]
    cache = MODEL.new_cache(1, 300)
    parts = [run(MODEL, cache, (0, a, LONG[a:b]))[0] for a, b in itertools.pairwise(edges)]
    close(torch.cat(parts), LONG_HIDDEN)


@examples(8)
@given(
    lengths=st.lists(st.integers(1, 140), min_size=1, max_size=8),
    order=st.permutations(range(12)),
    new=st.lists(st.sampled_from([1, 1, 1, 2, 30]), min_size=8, max_size=8),
    mixed=st.booleans(),
)
def test_what_else_is_in_the_batch_does_not_change_a_sequence(lengths, order, new, mixed):
    cache = MODEL.new_cache(12, 200)
    sequences = [ids_of(seed, length + new[seed]) for seed, length in enumerate(lengths)]
    for slot, ids, length in zip(order, sequences, lengths, strict=False):
        run(MODEL, cache, (slot, 0, ids[:length]))
    parts = [(s, n, ids[n:]) for s, ids, n in zip(order, sequences, lengths, strict=False)]
    if not mixed:
        parts.sort(key=lambda part: len(part[2]))
    for part, hidden in zip(parts, run(MODEL, cache, *parts), strict=True):
        ids = next(ids for slot, ids in zip(order, sequences, strict=False) if slot == part[0])
        close(hidden, reference_hidden(TINY, WEIGHTS, ids)[part[1] :])


def test_wanted_rows_come_back_in_the_order_asked_for():
    ids = ids_of(3, 20)
    whole = run(MODEL, MODEL.new_cache(1, 32), (0, 0, ids))[0]
    cache = MODEL.new_cache(1, 32)
    some = MODEL.forward(
        torch.tensor(ids), torch.arange(20), [Segment(0, 0, 20, 0)], cache, rows=torch.tensor([19, 4])
    )
    close(some, whole[[19, 4]])
    (after,) = run(MODEL, cache, (0, 20, [5]))
    close(after, reference_hidden(TINY, WEIGHTS, [*ids, 5])[-1:])


def test_a_copied_prefix_continues_like_the_original():
    ids = ids_of(4, 50)
    cache = MODEL.new_cache(3, 64)
    run(MODEL, cache, (2, 0, ids))
    cache.copy_prefix(2, 0, 30)
    (hidden,) = run(MODEL, cache, (0, 30, [7, 8]))
    close(hidden, reference_hidden(TINY, WEIGHTS, [*ids[:30], 7, 8])[30:])


@examples(7)
@given(lengths=st.lists(st.integers(1, 150), min_size=1, max_size=12), prefix=st.sampled_from([1, 17, 130]))
def test_packed_suffixes_equal_each_suffix_alone(lengths, prefix):
    cache = MODEL.new_cache(2, 200)
    ids = ids_of(5, prefix)
    run(MODEL, cache, (1, 0, ids))
    before = [tensor.clone() for tensor in (*cache.keys, *cache.values)]
    suffixes = [ids_of(10 + i, length) for i, length in enumerate(lengths)]
    hidden = MODEL.forward_packed(cache, 1, prefix, suffixes)
    expected = [reference_hidden(TINY, WEIGHTS, ids + suffix)[-1] for suffix in suffixes]
    close(hidden, torch.stack(expected))
    assert all(torch.equal(a, b) for a, b in zip(before, (*cache.keys, *cache.values), strict=True))


def test_more_suffixes_than_one_forward_takes_are_split():
    suffixes = [ids_of(i, 90) for i in range(20)] + [ids_of(99, 400)]
    hidden = MODEL.forward_packed(MODEL.new_cache(1, 8), 0, 0, suffixes)
    expected = [reference_hidden(TINY, WEIGHTS, suffix)[-1] for suffix in suffixes]
    close(hidden, torch.stack(expected))


@pytest.mark.parametrize("suffixes", [[], [[1], []]])
def test_packing_nothing_is_refused(suffixes):
    with pytest.raises(ValueError, match=r"no sequences|without tokens"):
        MODEL.forward_packed(MODEL.new_cache(1, 8), 0, 0, suffixes)


def test_label_logits_are_the_columns_of_the_logits():
    hidden = run(MODEL, MODEL.new_cache(1, 8), (0, 0, [1, 2, 3]))[0]
    close(MODEL.label_logits(hidden, [5, 90, 0]), MODEL.logits(hidden)[:, [5, 90, 0]], 1e-3)


def test_embeddings_are_unit_means_of_the_hidden_states():
    sequences = [ids_of(1, 300), ids_of(2, 1), ids_of(3, 30), ids_of(4, 400)]
    means = torch.stack([reference_hidden(TINY, WEIGHTS, ids).mean(0) for ids in sequences])
    close(MODEL.embed(sequences), means / means.norm(dim=-1, keepdim=True))


def test_bfloat16_stays_near_float32():
    model = Model.from_state_dict(TINY, WEIGHTS, dtype=torch.bfloat16)
    ids = ids_of(6, 60)
    (hidden,) = run(model, model.new_cache(1, 64), (0, 0, ids))
    expected = reference_hidden(TINY, WEIGHTS, ids)
    assert (hidden.double() - expected).norm() / expected.norm() < 0.03


@pytest.mark.parametrize(
    ("name", "shape"),
    [("model.layers.1.mlp.down_proj.weight", (64, 95)), ("model.embed_tokens.weight", (95, 64))],
)
def test_a_weight_of_the_wrong_shape_is_refused_by_name(name, shape):
    with pytest.raises(ModelFileError, match=name.replace(".", r"\.")):
        Model.from_state_dict(TINY, {**WEIGHTS, name: torch.zeros(shape)}, dtype=torch.float32)


def test_a_missing_weight_is_refused_by_name():
    weights = {name: w for name, w in WEIGHTS.items() if "layers.1.mlp.up_proj" not in name}
    with pytest.raises(ModelFileError, match=r"layers\.1\.mlp\.up_proj"):
        Model.from_state_dict(TINY, weights, dtype=torch.float32)


def test_an_unserved_dtype_is_refused():
    with pytest.raises(ValueError, match=r"torch\.float64"):
        Model.from_state_dict(TINY, WEIGHTS, dtype=torch.float64)
