"""sampling: the choice follows the distribution that the parameters describe, and nothing of the batch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from servicers.local import sampling
from servicers.local.sampling import Choice, argmax, choose, random_key, top_tokens, uniforms
from tests.examples import examples


def logits_of(seed: int, rows: int = 1, width: int = 640, scale: float = 2.0) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * scale


def kept_probabilities(logits: torch.Tensor, choice: Choice) -> np.ndarray:
    """The distribution after all cuts, in the plainest way: sort everything."""
    p = torch.softmax(logits.double() / choice.temperature, -1).numpy()
    order = np.lexsort((np.arange(len(p)), -p))
    ranked = p[order]
    keep = np.cumsum(ranked) - ranked < choice.top_p
    keep &= ranked >= choice.min_p * ranked[0]
    if choice.top_k > 0:
        keep &= np.arange(len(p)) < choice.top_k
    kept = np.zeros(len(p))
    kept[order[keep]] = ranked[keep]
    return kept / kept.sum()


def draw(logits: torch.Tensor, choice: Choice, count: int) -> np.ndarray:
    """Tokens at `count` positions of one sequence."""
    return choose(logits.expand(count, -1), [choice] * count, list(range(count)))


@pytest.mark.parametrize(
    "cuts",
    [
        {},
        {"top_k": 5},
        {"top_k": 200},  # more than the first candidates
        {"top_p": 0.5},
        {"top_p": 0.99},  # reached only among many
        {"min_p": 0.2},
        {"top_k": 20, "top_p": 0.8, "min_p": 0.05},
        {"temperature": 1.8},
        {"temperature": 0.3, "top_p": 0.9},
    ],
)
def test_frequencies_follow_the_cut_distribution(cuts):
    logits = logits_of(1)
    choice = Choice(key=random_key(7, 0), **cuts)
    expected = kept_probabilities(logits[0], choice)
    count = 4_000
    drawn = np.bincount(draw(logits, choice, count), minlength=len(expected))
    assert not drawn[expected == 0].any()
    # Chi-squared over the tokens expected at least 10 times and the rest as one: five sigma.
    frequent = expected * count >= 10
    observed = np.append(drawn[frequent], drawn[~frequent].sum())
    wanted = np.append(expected[frequent], expected[~frequent].sum()) * count
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    statistic = ((observed - wanted) ** 2 / wanted).sum()
    freedom = len(wanted) - 1
    assert statistic < freedom + 5 * np.sqrt(2 * freedom) + 5


@examples(7)
@given(
    seed=st.integers(0, 1000),
    scale=st.sampled_from([0.1, 1.0, 4.0]),
    top_k=st.sampled_from([-1, 2, 63, 64, 65, 300]),
    top_p=st.sampled_from([0.05, 0.7, 0.95, 0.9999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.5]),
)
def test_a_cut_token_is_never_chosen_however_few_candidates_decide(seed, scale, top_k, top_p, min_p):
    logits = logits_of(seed, scale=scale)
    choice = Choice(top_k=top_k, top_p=top_p, min_p=min_p, key=random_key(seed, 0))
    expected = kept_probabilities(logits[0], choice)
    # A token at the very edge may fall to either side by rounding.
    assert (expected[draw(logits, choice, 50)] > 0).mean() >= 0.98


@examples(6)
@given(seed=st.integers(0, 1000), top_p=st.sampled_from([0.3, 0.9, 0.999]), top_k=st.sampled_from([-1, 70]))
def test_the_number_of_candidates_does_not_change_the_choice(seed, top_p, top_k):
    logits = logits_of(seed, scale=1.0)
    choice = Choice(top_p=top_p, top_k=top_k, key=random_key(seed, 1))
    few = draw(logits, choice, 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "TOP_CANDIDATES", 640)
        assert (draw(logits, choice, 30) == few).all()


@examples(6)
@given(data=st.data(), rows=st.integers(2, 9))
def test_a_row_chooses_the_same_alone_and_in_any_batch(data, rows):
    logits = logits_of(data.draw(st.integers(0, 99)), rows)
    temperatures = st.sampled_from([0.0, 0.7, 1.0])
    choices = [
        Choice(
            temperature=data.draw(temperatures),
            top_p=data.draw(st.sampled_from([0.5, 1.0])),
            top_k=data.draw(st.sampled_from([-1, 1, 10, 100])),
            key=random_key(row, 0),
        )
        for row in range(rows)
    ]
    positions = list(range(rows))
    together = choose(logits, choices, positions)
    alone = [int(choose(logits[r : r + 1], [choices[r]], [r])[0]) for r in range(rows)]
    assert together.tolist() == alone


def test_temperature_zero_takes_the_likeliest_and_of_equals_the_lowest_id():
    logits = torch.zeros(2, 640)
    logits[0, [77, 300]] = 5.0
    assert choose(logits, [Choice(temperature=0.0)] * 2, [0, 0]).tolist() == [77, 0]


def test_a_tiny_temperature_does_not_overflow():
    logits = logits_of(3)
    assert draw(logits, Choice(temperature=1e-300), 3).tolist() == argmax(logits).tolist() * 3
    assert draw(logits, Choice(temperature=2e-5, key=5), 3).tolist() == argmax(logits).tolist() * 3


@pytest.mark.parametrize("allowed", [1, 3, 64, 65, 100])
def test_a_masked_token_is_never_chosen_even_at_the_edge_of_the_mass(allowed, monkeypatch):
    logits = torch.full((1, 640), float("-inf"))
    logits[0, 640 - allowed :] = logits_of(4, width=allowed)[0]
    for number in (0.0, 0.5, 1 - 2**-53):
        monkeypatch.setattr(sampling, "uniforms", lambda keys, _, number=number: np.full(len(keys), number))
        (token,) = choose(logits, [Choice()], [0])
        assert token >= 640 - allowed


def test_seed_choice_index_and_position_each_change_the_number():
    base = uniforms([random_key(1, 0)], [0])[0]
    others = [
        uniforms([random_key(2, 0)], [0])[0],
        uniforms([random_key(1, 1)], [0])[0],
        uniforms([random_key(1, 0)], [1])[0],
        uniforms([random_key(-1, 0)], [0])[0],
    ]
    assert len({base, *others}) == 5


def test_uniform_numbers_are_uniform():
    numbers = uniforms([random_key(seed, 0) for seed in range(20_000)], [3] * 20_000)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.bincount((numbers * 20).astype(int), minlength=20)
    assert abs(counts - 1000).max() < 160  # five sigma


@examples(6)
@given(
    seed=st.integers(0, 999),
    width=st.sampled_from([64 * 300, 64 * 300 + 1, 640, 40]),
    count=st.sampled_from([1, 20, 64]),
)
def test_top_tokens_equals_a_full_sort(seed, width, count):
    # Coarse numbers have many equals; the scores must still be the highest ones.
    logits = (logits_of(seed, 2, width) * 2).round() / 2
    values, ids = top_tokens(logits, count)
    expected = logits.sort(-1, descending=True).values[:, : min(count, width)]
    assert torch.equal(values, expected)
    assert torch.equal(logits.gather(1, ids), values)
    assert all(len(set(row)) == len(row) for row in ids.tolist())
