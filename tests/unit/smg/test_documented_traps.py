"""docs/traps.md names tests. They exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def test_every_test_that_the_list_of_traps_names_exists():
    named = NAMED.findall((ROOT / "docs" / "traps.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file()
        or (name and f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert not missing
