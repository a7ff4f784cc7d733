"""compose: the tokens of a script under every combination of sampling parameters, against a token-by-token model."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from servicers.echo.directives import NO_PLAN, Plan
from servicers.echo.output import LENGTH, STOP, Material, compose
from servicers.echo.planner import Script
from smg_proto.engine.v1 import card_pb2

EOS, FILLER = 0, 1
MATERIAL = Material(passage=[10, 11, 12, 13, 14], filler=FILLER, eos_ids=(EOS,), context_length=40)


def tokens_of(output, at_most: int = 100) -> list[int]:
    total = at_most if output.total is None else min(output.total, at_most)
    return [output.token(position) for position in range(total)]


def simulate(script, sampling, prompt_tokens) -> tuple[list[int], int, int | None]:
    """The same, token by token, as an engine would: stop tokens are masked before min_new_tokens."""
    stops = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else {EOS})
    filler = next(each for each in (FILLER, *MATERIAL.passage) if each not in stops)
    limit = MATERIAL.context_length - prompt_tokens
    if sampling.HasField("max_new_tokens"):
        limit = min(limit, sampling.max_new_tokens)

    def wanted():
        if script.is_endless:
            position = script.passage_start
            while True:
                yield MATERIAL.passage[position % len(MATERIAL.passage)]
                position += 1
        yield from script.ids
        if not sampling.ignore_eos and script.plan.has_eos:
            for _ in range(len(script.ids), sampling.min_new_tokens):
                yield filler
            yield EOS
        while sampling.ignore_eos or len(out) < sampling.min_new_tokens:
            yield filler

    out: list[int] = []
    for token in wanted():
        if len(out) >= limit:
            return out, LENGTH, None
        is_early = len(out) < sampling.min_new_tokens
        out.append(filler if token in stops and is_early else token)
        if token in stops and not is_early:
            return out, STOP, token
    if len(out) > limit:
        return out[:limit], LENGTH, None
    return out, STOP, None


SAMPLINGS = st.builds(
    lambda most, least, stops, ignore: card_pb2.Sampling(
        **({} if most is None else {"max_new_tokens": most}),
        min_new_tokens=least,
        stop_token_ids=stops,
        ignore_eos=ignore,
    ),
    st.none() | st.integers(0, 30),
    st.integers(0, 20),
    st.lists(st.sampled_from([0, 1, 5, 6, 10, 12]), max_size=3),
    st.booleans(),
)
SCRIPTS = st.builds(
    lambda ids, has_eos, is_endless, start: Script(
        Plan(has_eos=has_eos), () if is_endless else ids, is_endless, start if is_endless else 0
    ),
    st.lists(st.integers(5, 9), max_size=12),
    st.booleans(),
    st.booleans(),
    st.integers(0, 4),
)


@given(script=SCRIPTS, sampling=SAMPLINGS, prompt_tokens=st.integers(1, 39))
def test_output_is_that_of_a_token_by_token_engine(script, sampling, prompt_tokens):
    output = compose(script, sampling, prompt_tokens, MATERIAL)
    tokens, reason, matched = simulate(script, sampling, prompt_tokens)
    assert tokens_of(output) == tokens
    assert output.reason == reason
    assert output.matched == matched


def test_a_hanging_reply_has_no_end_whatever_the_limits():
    output = compose(Script(Plan(hangs=True), [5, 6]), card_pb2.Sampling(max_new_tokens=4), 1, MATERIAL)
    assert output.total is None
    assert tokens_of(output, 6) == [5, 6, FILLER, FILLER, FILLER, FILLER]


def test_an_endless_reply_without_limits_has_no_end():
    unlimited = MATERIAL._replace(context_length=0)
    output = compose(Script(NO_PLAN, (), is_endless=True, passage_start=3), card_pb2.Sampling(), 1, unlimited)
    assert output.total is None
    assert list(islice(map(output.token, range(7)), 7)) == [13, 14, 10, 11, 12, 13, 14]
