"""Logits become probabilities, windows one text's, and labelled tokens spans of its code points."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.decisions.classes import entity_of, joined, sigmoid, softmax, spans_of

LOGITS = st.lists(st.floats(-700, 700), min_size=1, max_size=9)


@given(LOGITS)
def test_a_softmax_sums_to_one_and_keeps_the_order(logits):
    chances = softmax(logits)
    assert math.fsum(chances) == pytest.approx(1, abs=1e-12)
    assert chances.index(max(chances)) <= logits.index(max(logits)) or max(chances) == min(chances)
    assert softmax([each + 100 for each in logits]) == pytest.approx(chances, abs=1e-9)


@given(st.floats(-1e6, 1e6))
def test_a_logistic_function_is_symmetric_and_never_overflows(logit):
    assert sigmoid(logit) + sigmoid(-logit) == pytest.approx(1, abs=1e-12)
    assert 0 <= sigmoid(logit) <= 1


def test_windows_of_exclusive_labels_are_weighted_by_their_tokens_and_independent_ones_take_the_highest():
    rows = [[0.9, 0.1], [0.3, 0.7]]
    assert joined(rows, [3, 1], are_independent=False) == pytest.approx([0.75, 0.25])
    assert joined(rows, [0, 0], are_independent=False) == pytest.approx([0.6, 0.4])
    assert joined(rows, [3, 1], are_independent=True) == [0.9, 0.7]
    assert joined(rows[:1], [0], are_independent=False) == rows[0]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("B-PER", ("PER", True)),
        ("I-PER", ("PER", False)),
        ("S-PER", ("PER", True)),
        ("O", ("O", False)),
        ("PER", ("PER", False)),
        ("E-MAIL", ("MAIL", False)),
        ("X-RAY", ("X-RAY", False)),
        ("B-", ("B-", False)),
    ],
)
def test_marks_of_a_place_are_no_part_of_a_label(label, expected):
    assert entity_of(label) == expected


def row(labels, best, chance=0.9):
    rest = (1 - chance) / (len(labels) - 1)
    return [chance if label == best else rest for label in labels]


PLAIN = ("O", "NAME", "MAIL")
MARKED = ("O", "B-NAME", "I-NAME", "B-MAIL", "I-MAIL")


def found(text, places, tags, labels=PLAIN):
    rows = [row(labels, tag) for tag in tags]
    return [(span.label, text[span.start : span.end]) for span in spans_of(text, places, rows, labels)]


def test_neighbours_of_one_label_are_one_span_and_a_gap_or_another_label_ends_it():
    text = "Tom  Baker, a@b.c x"
    places = [(0, 3), (5, 10), (10, 11), (12, 17), (18, 19)]
    assert found(text, places, ["NAME", "NAME", "O", "MAIL", "O"]) == [
        ("NAME", "Tom  Baker"),
        ("MAIL", "a@b.c"),
    ]
    assert found(text, places, ["NAME", "MAIL", "O", "O", "NAME"]) == [
        ("NAME", "Tom"),
        ("MAIL", "Baker"),
        ("NAME", "x"),
    ]
    # Between the two tokens stands something that no token stands for.
    assert found("Tom-Baker", [(0, 3), (4, 9)], ["NAME", "NAME"]) == [("NAME", "Tom"), ("NAME", "Baker")]


def test_a_label_that_begins_begins_a_new_span():
    text = "Ann Bob Lee"
    places = [(0, 3), (4, 7), (8, 11)]
    assert found(text, places, ["B-NAME", "B-NAME", "I-NAME"], MARKED) == [
        ("NAME", "Ann"),
        ("NAME", "Bob Lee"),
    ]
    assert found(text, places, ["I-NAME", "I-NAME", "O"], MARKED) == [("NAME", "Ann Bob")]


def test_white_space_at_the_ends_of_a_span_is_no_part_of_it():
    # Byte-level tokenizers have the blank in the token behind it.
    assert found("a  Tom ", [(0, 1), (1, 6), (6, 7)], ["O", "NAME", "NAME"]) == [("NAME", "Tom")]
    assert found("a  ", [(0, 1), (1, 3)], ["O", "NAME"]) == []


def test_the_probability_is_the_mean_of_the_entitys_whatever_its_marks():
    labels = ("O", "B-N", "I-N")
    (span,) = spans_of("ab", [(0, 1), (1, 2)], [[0.1, 0.6, 0.3], [0.4, 0.1, 0.5]], labels)
    assert span.probability == pytest.approx((0.9 + 0.6) / 2)
    assert (span.start, span.end) == (0, 2)


def test_without_a_label_o_the_first_means_none():
    labels = ("supported", "unsupported")
    assert found("a b", [(0, 1), (2, 3)], ["supported", "unsupported"], labels) == [("unsupported", "b")]
