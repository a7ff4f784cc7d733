"""Spans: words without the punctuation around them, joined where neighbours count; offsets are code points."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from smg.decisions.spans import Place, Span, joined, words

TEXT = "👋🏽 I'm Tom Baker (tom.baker@example.com)."


def spelled(text, places):
    return [text[place.start : place.end] for place in places]


def test_words_keep_what_is_inside_and_lose_what_is_around():
    assert spelled(TEXT, words(TEXT)) == ["👋🏽", "I'm", "Tom", "Baker", "tom.baker@example.com"]
    assert spelled("«Él» pagó 1,299.50 €.", words("«Él» pagó 1,299.50 €.")) == ["Él", "pagó", "1,299.50", "€"]


@given(st.text(max_size=60))
def test_words_are_slices_in_order_and_never_blank(text):
    places = words(text)
    assert all(text[place.start : place.end].strip() for place in places)
    assert all(one.end <= other.start for one, other in itertools.pairwise(places))


def test_neighbours_that_count_are_one_span_as_likely_as_the_least_likely_word():
    places = words(TEXT)
    assert joined(TEXT, places, [0.1, 0.2, 0.9, 0.8, 0.7], 0.5) == [Span(7, 16, 0.8), Span(18, 39, 0.7)]


def test_a_word_between_keeps_them_apart():
    assert joined("a b c", words("a b c"), [0.9, 0.1, 0.9], 0.5) == [Span(0, 1, 0.9), Span(4, 5, 0.9)]


def test_the_threshold_itself_counts_and_nothing_is_fine():
    assert joined("a", [Place(0, 1)], [0.5], 0.5) == [Span(0, 1, 0.5)]
    assert joined("", words(" … "), [], 0.5) == []
