"""KVCache: slots do not touch each other, and memory is taken only for tokens that exist."""

import psutil
import pytest
import torch

from servicers.local.kv_cache import KVCache


def new_cache(**sizes) -> KVCache:
    wanted = {"layers": 2, "slots": 3, "slot_tokens": 8, "kv_heads": 2, "head_dim": 4, **sizes}
    return KVCache(**wanted, dtype=torch.float32, device=torch.device("cpu"))


def test_a_fresh_cache_is_all_zeros():
    cache = new_cache()
    assert not any(tensor.any() for tensor in (*cache.keys, *cache.values))


def test_copying_a_prefix_moves_those_tokens_and_no_others():
    cache = new_cache()
    for layer, tensor in enumerate((*cache.keys, *cache.values)):
        tensor[0] = layer + 1
        tensor[1] = -1
    cache.copy_prefix(0, 1, 5)
    for layer, tensor in enumerate((*cache.keys, *cache.values)):
        assert (tensor[1, :, :5] == layer + 1).all()
        assert (tensor[1, :, 5:] == -1).all()
        assert (tensor[2] == 0).all()


@pytest.mark.parametrize(("source", "target", "tokens"), [(3, 0, 1), (0, -1, 1), (0, 1, 9), (0, 1, -1)])
def test_copying_outside_the_slabs_is_refused(source, target, tokens):
    with pytest.raises(ValueError, match="slot"):
        new_cache().copy_prefix(source, target, tokens)


@pytest.mark.parametrize("sizes", [{"slots": 0}, {"slot_tokens": 0}])
def test_a_cache_for_nothing_is_refused(sizes):
    with pytest.raises(ValueError, match="at least 1"):
        new_cache(**sizes)


def test_tokens_that_nobody_wrote_take_no_memory():
    process = psutil.Process()
    before = process.memory_info().rss
    cache = new_cache(layers=8, slots=16, slot_tokens=8192, kv_heads=2, head_dim=64)
    slab_bytes = cache.token_bytes * 16 * 8192
    cache.keys[0][:, :, :4] = 1
    assert slab_bytes == 1 << 30
    assert process.memory_info().rss - before < 32 << 20
