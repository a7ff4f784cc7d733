"""An input to classify as the model reads it: whole, cut, or in windows that overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.errors import InvalidRequest
from smg.prompt.packed import ID_BYTES
from smg.prompt.reading import too_long
from smg.validation.encode import refused
from smg_proto.embedding.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smg.prompt.builder import PromptBuilder
    from smg.prompt.reading import ReadText
    from smg_proto.embedding.v1 import classify_pb2

# A window shares this part of itself with the next, unless the request says.
_OVERLAP_PART = 8


class Bounds(NamedTuple):
    """How much of an input is read.

    Attributes:
        most: tokens of one sequence, what stands around the text included.
        scan: tokens of an input that is read in windows; None where there are no windows.
        overlap: tokens that neighbouring windows share.
        may_cut: what is too long is cut.
    """

    most: int
    scan: int | None
    overlap: int
    may_cut: bool


class Failure(NamedTuple):
    """Why an input is not classified: a fixed word, and words."""

    error: str
    message: str


class Window(NamedTuple):
    """One sequence.

    Attributes:
        ids: packed.
        second_at: where the second text begins; None for a single one.
        first: number of its first token of the text that is cut or scanned, among that text's tokens.
        tokens: how many of those it has.
        offset: where they begin in the sequence.
    """

    ids: bytes
    second_at: int | None
    first: int
    tokens: int
    offset: int


class Pieces(NamedTuple):
    """An input that can be classified.

    Attributes:
        windows: one, or several that overlap.
        text: in which spans are found.
        spans: for each token of that text where it stands; empty where no spans are wanted.
        tokens: that were read.
        is_whole: nothing was cut.
    """

    windows: list[Window]
    text: str
    spans: list[tuple[int, int]]
    tokens: int
    is_whole: bool


def bounds_of(options: common_pb2.EncodeOptions, most: int, max_scan: int) -> Bounds:
    """The bounds of a request.

    Raises:
        InvalidRequest: windows that are not possible.
    """
    if options.overflow != common_pb2.OVERFLOW_WINDOW:
        return Bounds(most, None, 0, options.overflow == common_pb2.OVERFLOW_TRUNCATE)
    window = options.window_tokens if options.HasField("window_tokens") else most
    if window > most:
        raise refused(
            f"options.window.tokens is {window}; the model takes at most {most}", "options.window.tokens"
        )
    overlap = options.window_overlap if options.HasField("window_overlap") else window // _OVERLAP_PART
    if overlap >= window:
        raise refused(
            f"options.window.overlap is {overlap}; it must be less than a window has, {window}",
            "options.window.overlap",
        )
    scan = options.max_tokens if options.HasField("max_tokens") else max_scan
    return Bounds(window, scan, overlap, False)


def pieces_of(
    builder: PromptBuilder, item: classify_pb2.ClassifyInput, bounds: Bounds, *, wants_spans: bool
) -> Pieces | Failure:
    """Read one input."""
    try:
        return _pieces(builder, item, bounds, wants_spans=wants_spans)
    except InvalidRequest as error:
        return Failure("invalid_input", error.message)


def _pieces(
    builder: PromptBuilder, item: classify_pb2.ClassifyInput, bounds: Bounds, *, wants_spans: bool
) -> Pieces | Failure:
    most = bounds.scan if bounds.scan is not None else bounds.most
    if item.HasField("grounding"):
        fixed: str | None = f"{item.grounding.context}\n{item.grounding.question}"
        is_second = True  # the scanned text is the answer, after what it is held against
    else:
        fixed = item.text_pair if item.HasField("text_pair") else None
        is_second = False
    if not item.text and not fixed:
        return Failure("invalid_input", "the input is empty; it must have a text")
    scanned = builder.read(item.text, most, with_spans=wants_spans)
    beside = builder.read(fixed, most) if fixed is not None else None
    if fixed is not None and builder.pairing is None:
        return Failure("invalid_input", "the model's tokenizer does not say how two texts are read together")
    around = builder.pairing.tokens if beside is not None and builder.pairing else builder.around_tokens
    tokens = scanned.tokens + around + (beside.tokens if beside is not None else 0)
    is_whole = scanned.is_whole and (beside is None or beside.is_whole)
    if is_whole and tokens <= bounds.most:
        windows = [_window(builder, scanned.ids, beside, 0, is_second=is_second)]
        return Pieces(windows, item.text, scanned.spans, tokens, True)
    if bounds.scan is not None:
        return _scanned(builder, item.text, scanned, beside, bounds, tokens, around, is_second=is_second)
    if not bounds.may_cut:
        return Failure(
            "max_length_exceeded",
            f"the input {too_long(tokens, bounds.most, is_whole=is_whole)}",
        )
    room = max(bounds.most - around, 0)
    if beside is not None:
        # The longer of the two is cut, the other only where it does not fit either.
        kept = min(scanned.tokens, max(room // 2, room - beside.tokens))
        beside = beside.start(room - kept)
        scanned = scanned.start(kept)
    else:
        scanned = scanned.start(room)
    windows = [_window(builder, scanned.ids, beside, 0, is_second=is_second)]
    return Pieces(windows, item.text, scanned.spans, tokens, False)


def _scanned(
    builder: PromptBuilder,
    text: str,
    scanned: ReadText,
    beside: ReadText | None,
    bounds: Bounds,
    tokens: int,
    around: int,
    *,
    is_second: bool,
) -> Pieces | Failure:
    assert bounds.scan is not None  # noqa: S101 - it was looked at
    is_whole = scanned.is_whole and (beside is None or beside.is_whole)
    if not is_whole or tokens > bounds.scan:
        said = too_long(tokens, bounds.scan, is_whole=is_whole)
        return Failure("scan_budget_exceeded", f"the input {said}, of an input that is scanned")
    room = bounds.most - around - (beside.tokens if beside is not None else 0)
    if room <= bounds.overlap:
        return Failure(
            "max_length_exceeded",
            f"a window of {bounds.most} tokens has no room for more than what neighbours share, {bounds.overlap}",
        )
    windows = [
        _window(builder, scanned.ids[first * ID_BYTES : last * ID_BYTES], beside, first, is_second=is_second)
        for first, last in spread(scanned.tokens, room, bounds.overlap)
    ]
    return Pieces(windows, text, scanned.spans, tokens, True)


def spread(tokens: int, room: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Windows over so many tokens, each but the last full, neighbours sharing `overlap`."""
    first = 0
    while True:
        last = min(first + room, tokens)
        yield first, last
        if last == tokens:
            return
        first = last - overlap


def _window(
    builder: PromptBuilder, ids: bytes, beside: ReadText | None, first: int, *, is_second: bool
) -> Window:
    count = len(ids) // ID_BYTES
    if beside is None or builder.pairing is None:
        return Window(builder.surrounded(ids), None, first, count, builder.prefix_tokens)
    before, between, after = builder.pairing
    texts = (beside.ids, ids) if is_second else (ids, beside.ids)
    second_at = len(before + texts[0] + between) // ID_BYTES
    offset = second_at if is_second else len(before) // ID_BYTES
    whole = before + texts[0] + between + texts[1] + after
    # A second text without tokens has no beginning.
    begins = second_at if second_at < len(whole) // ID_BYTES else None
    return Window(whole, begins, first, count, offset)
