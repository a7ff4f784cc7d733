"""KeyTable: finds a key's owner, and keeps no key."""

from hypothesis import given
from hypothesis import strategies as st

from smg.callers.keys import KeyTable
from smg.types.context import Caller

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(KEYS, unique=True, min_size=1), KEYS)
def test_each_key_finds_its_owner_and_no_other_key_does(keys, other):
    table = KeyTable((key, Caller(tenant=str(number))) for number, key in enumerate(keys))
    for number, key in enumerate(keys):
        assert table.caller(key.encode()).tenant == str(number)
        if key[:-1] not in keys:
            assert table.caller(key[:-1].encode()) is None
    if other not in keys:
        assert table.caller(other.encode()) is None


def test_what_is_kept_tells_no_key_and_differs_between_processes():
    first, second = (KeyTable([("a-secret-key", Caller())]) for _ in range(2))
    assert "a-secret-key" not in repr(vars(first))
    assert vars(first)["_callers"].keys() != vars(second)["_callers"].keys()


def test_looking_a_key_up_compares_with_one_key_at_most(monkeypatch):
    """A thousand keys take no longer than one, right or wrong: the time has nothing to tell."""
    compared = []
    monkeypatch.setattr("smg.callers.keys.hmac.compare_digest", lambda *pair: compared.append(pair) or False)
    table = KeyTable((f"key-{number}", Caller()) for number in range(1000))
    for token in (b"key-0", b"key-999", b"key-", b"wrong"):
        compared.clear()
        assert table.caller(token) is None
        assert len(compared) == 1
