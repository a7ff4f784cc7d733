"""The simulated prefix cache: who watches can tell at any time what is held."""

from hypothesis import given
from hypothesis import strategies as st

from servicers.echo.prefix_cache import BLOCK_TOKENS, PrefixCache, prompt_blocks


def prompt(kind: int, tokens: int) -> bytes:
    return b"".join((kind if number >= 40 else 7).to_bytes(4, "little") for number in range(tokens))


def held_after(changes, held):
    """What a listener takes to be held: prefixes by whole blocks."""
    for change in changes:
        for gone in change.evicted_prefixes:
            for end in range(gone.kept_tokens + BLOCK_TOKENS, len(gone.ids) // 4 + 1, BLOCK_TOKENS):
                held.discard(gone.ids[: 4 * end])
        for new in change.stored_prefixes:
            for end in range(BLOCK_TOKENS, len(new.ids) // 4 + 1, BLOCK_TOKENS):
                held.add(new.ids[: 4 * end])


@given(asked=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 200)), max_size=40))
def test_a_listener_knows_what_is_held(asked):
    cache, held = PrefixCache(20 * BLOCK_TOKENS), set()
    cache.changes = []
    for kind, tokens in asked:
        ids = prompt(kind, tokens)
        cache.add(prompt_blocks(ids, "m"), ids, "m")
        held_after(cache.changes, held)
        cache.changes = []
        assert len(held) * BLOCK_TOKENS == cache.used_tokens


def test_nobody_pays_where_nobody_watches():
    cache = PrefixCache(20 * BLOCK_TOKENS)
    ids = prompt(1, 100)
    cache.add(prompt_blocks(ids, "m"), ids, "m")
    assert cache.changes is None
    cache.flush(())
    assert cache.changes is None
