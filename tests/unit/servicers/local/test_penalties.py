"""penalties: the same numbers as the formulas, token by token, whatever the batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servicers.local.penalties import PenaltyState, apply_penalties
from tests.examples import examples
from tests.unit.servicers.local.tensors import assert_close

WIDTH = 50
IDS = st.lists(st.integers(0, WIDTH - 1), max_size=40)


def expected_row(row, *, repetition, presence, frequency, bias, prompt, output):
    result = row.clone()
    for token in set(prompt) | set(output):
        result[token] = result[token] / repetition if result[token] > 0 else result[token] * repetition
    for token in set(output):
        result[token] -= presence + frequency * output.count(token)
    for token, value in bias.items():
        result[token] += value
    return result


@examples(8)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "repetition": st.sampled_from([1.0, 1.3, 0.7]),
                "presence": st.sampled_from([0.0, 0.5, -1.0]),
                "frequency": st.sampled_from([0.0, 0.25]),
                "bias": st.dictionaries(
                    st.integers(0, WIDTH - 1), st.sampled_from([-100.0, 1.5]), max_size=4
                ),
                "prompt": IDS,
                "output": IDS,
            }
        ),
        min_size=1,
        max_size=4,
    ),
    cut=st.integers(0, 40),
)
def test_logits_equal_the_formula_also_when_a_sequence_continues(rows, cut):
    logits = torch.randn(len(rows) + 1, WIDTH, generator=torch.Generator().manual_seed(len(rows)))
    expected = [expected_row(logits[i], **row) for i, row in enumerate(rows)]
    untouched = logits[-1].clone()
    states = []
    for i, row in enumerate(rows):
        # Part of the output came from another engine, the rest token by token.
        state = PenaltyState(**{**row, "output": row["output"][:cut]})
        for token in row["output"][cut:]:
            state.add(token)
        states.append((i, state))
    apply_penalties(logits, states)
    assert_close(logits[:-1], torch.stack(expected), rtol=1.3e-6, atol=1e-5)
    assert torch.equal(logits[-1], untouched)


@pytest.mark.parametrize(
    ("wanted", "is_idle"), [({}, True), ({"presence": 1.0}, False), ({"bias": {1: 2.0}}, False)]
)
def test_a_state_that_changes_nothing_says_so(wanted, is_idle):
    assert PenaltyState(**wanted).is_idle is is_idle
