"""How many examples a property test gets: few at every run, many in `make fuzz`.

Two profiles of hypothesis, chosen with --hypothesis-profile; "quick" is the one of every other run. A test without
settings of its own has EXAMPLES, one with @examples(n) has n; both times THOROUGH_FACTOR in the profile "thorough".
Where hypothesis is told nothing else each run draws other examples, so what a run looks at adds up over runs.
"""

from __future__ import annotations

from hypothesis import settings

EXAMPLES = 25
THOROUGH_FACTOR = 20


def register_profiles() -> None:
    """Make both profiles known and take "quick". No deadlines: a busy machine is no error of the code."""
    settings.register_profile("quick", max_examples=EXAMPLES, deadline=None)
    settings.register_profile("thorough", max_examples=EXAMPLES * THOROUGH_FACTOR, deadline=None)
    settings.load_profile("quick")


def examples(quick: int, **options: object) -> settings:
    """Settings of a test that has `quick` examples at an ordinary run; options are those of hypothesis.settings.

    Evaluated when a test's module is imported, and by then the profile is chosen.
    """
    return settings(max_examples=quick * settings.default.max_examples // EXAMPLES, **options)
