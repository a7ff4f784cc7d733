"""Windows over a text: each token is in one, neighbours share what they are to share, pairs keep what is not scanned."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.errors import InvalidRequest
from smg.pipelines.encode.pieces import Bounds, Failure, bounds_of, pieces_of, spread
from smg.prompt.builder import PromptBuilder
from smg.prompt.packed import unpack_ids
from smg_proto.embedding.v1 import classify_pb2, common_pb2
from tests.tiny_encoder import write_tokenizer


@given(st.integers(0, 400), st.integers(1, 50), st.data())
def test_every_token_is_in_a_window_and_neighbours_share_the_overlap(tokens, room, data):
    overlap = data.draw(st.integers(0, room - 1))
    windows = list(spread(tokens, room, overlap))
    assert windows[0][0] == 0
    assert windows[-1][1] == tokens
    assert all(last - first == room for first, last in windows[:-1])
    for (_, last), (first, _) in itertools.pairwise(windows):
        assert last - first == overlap


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    target = tmp_path_factory.mktemp("pieces") / "t"
    write_tokenizer(target)
    return PromptBuilder.load(target)


WORDS = "the tom please with music"  # five tokens


def item(**members):
    return classify_pb2.ClassifyInput(**members)


def test_a_text_that_fits_is_one_sequence(builder):
    pieces = pieces_of(builder, item(text=WORDS), Bounds(7, None, 0, False), wants_spans=True)
    (window,) = pieces.windows
    assert (window.first, window.tokens, window.offset, window.second_at) == (0, 5, 1, None)
    assert len(unpack_ids(window.ids)) == 7
    assert [WORDS[start:end] for start, end in pieces.spans] == WORDS.split()


def test_a_text_that_does_not_fit_fails_or_is_cut(builder):
    refused = pieces_of(builder, item(text=WORDS), Bounds(6, None, 0, False), wants_spans=False)
    assert refused == Failure("max_length_exceeded", "the input has 7 tokens; at most 6 are allowed")
    cut = pieces_of(builder, item(text=WORDS), Bounds(6, None, 0, True), wants_spans=False)
    assert (len(unpack_ids(cut.windows[0].ids)), cut.is_whole, cut.tokens) == (6, False, 7)


def test_of_a_pair_the_longer_text_is_cut(builder):
    pair = item(text="the tom", text_pair=WORDS)
    pieces = pieces_of(builder, pair, Bounds(8, None, 0, True), wants_spans=False)
    (window,) = pieces.windows
    ids = unpack_ids(window.ids)
    assert len(ids) == 8
    assert window.second_at == 4
    assert ids[1:3] == unpack_ids(builder.read("the tom", 9).ids)
    assert ids[4:7] == unpack_ids(builder.read(WORDS, 9).ids)[:3]
    both_long = pieces_of(
        builder, item(text=WORDS, text_pair=WORDS), Bounds(7, None, 0, True), wants_spans=False
    )
    assert len(unpack_ids(both_long.windows[0].ids)) == 7


def test_windows_keep_the_other_text_and_scan_the_answer(builder):
    grounded = item(text=WORDS, grounding=classify_pb2.Grounding(context="the tom", question="my"))
    pieces = pieces_of(builder, grounded, Bounds(9, 100, 1, False), wants_spans=True)
    assert [(window.first, window.tokens) for window in pieces.windows] == [(0, 3), (2, 3)]
    for window in pieces.windows:
        ids = unpack_ids(window.ids)
        assert len(ids) == 9
        assert window.offset == window.second_at == 5
        wanted = unpack_ids(builder.read(WORDS, 9).ids)[window.first : window.first + window.tokens]
        assert ids[window.offset : window.offset + window.tokens] == wanted


def test_a_window_without_room_and_a_text_beyond_the_scan_fail(builder):
    grounded = item(text=WORDS, grounding=classify_pb2.Grounding(context=WORDS, question=WORDS))
    assert (
        pieces_of(builder, grounded, Bounds(12, 100, 1, False), wants_spans=True).error
        == "max_length_exceeded"
    )
    failure = pieces_of(builder, item(text=WORDS * 9), Bounds(6, 20, 1, False), wants_spans=True)
    assert failure.error == "scan_budget_exceeded"
    assert pieces_of(builder, item(), Bounds(6, None, 0, False), wants_spans=False).error == "invalid_input"
    # A budget that has no room for anything leaves what stands around the texts.
    least = pieces_of(builder, item(text=WORDS, text_pair=WORDS), Bounds(1, None, 0, True), wants_spans=False)
    assert len(unpack_ids(least.windows[0].ids)) == builder.pairing.tokens


def test_bounds_are_those_of_the_options():
    options = common_pb2.EncodeOptions(overflow=common_pb2.OVERFLOW_WINDOW)
    assert bounds_of(options, 64, 1000) == Bounds(64, 1000, 8, False)
    options = common_pb2.EncodeOptions(
        overflow=common_pb2.OVERFLOW_WINDOW, window_tokens=10, window_overlap=0, max_tokens=50
    )
    assert bounds_of(options, 64, 1000) == Bounds(10, 50, 0, False)
    assert bounds_of(common_pb2.EncodeOptions(), 64, 1000) == Bounds(64, None, 0, False)
    options.window_tokens = 65
    with pytest.raises(InvalidRequest, match="at most 64"):
        bounds_of(options, 64, 1000)
