"""A text is read only as far as its budget needs, and what is read is what reading all of it gives."""

import pytest
from tokenizers import Tokenizer

from smg.prompt.builder import PromptBuilder
from smg.prompt.packed import unpack_ids
from smg.prompt.reading import CHUNK_CHARS, MAX_RUN_CHARS, chunks, too_long
from tests.tiny_encoder import write_tokenizer


@pytest.fixture(scope="module", params=["wordpiece", "bytes", "chat"])
def directory(request, tmp_path_factory, tokenizer_dir):
    if request.param == "chat":
        return tokenizer_dir
    target = tmp_path_factory.mktemp("reading") / request.param
    write_tokenizer(target, roberta=request.param == "bytes")
    return target


TEXTS = (
    "The quick brown fox, naïve 👋🏽 é́. " * 3000,
    "no-blanks" * 30_000,
    "\n\n\t  lines\n  and   blanks \n" * 4000,
    " " * 100_000 + "end",
    "word " * (CHUNK_CHARS // 5) + "x",
)


def whole(directory, text):
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_beginning_is_that_of_the_whole_text_and_the_rest_is_not_read(directory, text):
    builder = PromptBuilder.load(directory)
    expected = whole(directory, text)
    for with_spans in (False, True):
        read = builder.read(text, 500, with_spans=with_spans)
        ids = unpack_ids(read.ids)
        certain = len(ids) if read.is_whole else 500
        if "no-blanks" not in text:  # a run is cut where it is too long
            assert ids[:certain] == expected.ids[:certain]
            assert len(ids) == len(expected.ids) or len(ids) > 500
        if with_spans:
            assert len(read.spans) == len(ids)
            if "no-blanks" not in text:
                assert read.spans[:certain] == expected.offsets[:certain]


def test_a_text_that_makes_no_tokens_is_read_for_so_many_characters_only(directory):
    builder = PromptBuilder.load(directory)
    for with_spans in (False, True):
        read = builder.read(" " * 70_000 + "x" * 2_000_000 + " end", 4, with_spans=with_spans)
        assert not read.is_whole
        assert read.tokens < len(whole(directory, "x" * 200_000).ids) + 70_000
    assert "characters for each" in too_long(3, 4, is_whole=False)
    assert too_long(5, 4, is_whole=True) == "has 5 tokens; at most 4 are allowed"


def test_short_texts_are_whole_and_start_cuts_them(directory):
    builder = PromptBuilder.load(directory)
    read = builder.read("the tom please", 2, with_spans=True)
    assert read.is_whole
    cut = read.start(2)
    assert (cut.tokens, len(cut.spans), cut.is_whole) == (2, 2, False)
    assert read.start(99) is read


def test_chunks_are_the_text_and_end_before_white_space():
    text = TEXTS[0] + "a" * (3 * MAX_RUN_CHARS) + " b"
    found = list(chunks(text))
    assert "".join(chunk for _, chunk in found) == text
    assert [start for start, _ in found] == [text.index(found[0][1]), *(start for start, _ in found[1:])]
    assert all(len(chunk) <= CHUNK_CHARS + MAX_RUN_CHARS for _, chunk in found)
    place = 0
    for start, chunk in found:
        assert start == place
        place += len(chunk)


def test_what_stands_around_pairs_is_what_the_tokenizer_puts_there(tmp_path):
    for name, roberta in (("wordpiece", False), ("bytes", True)):
        write_tokenizer(tmp_path / name, roberta=roberta)
        builder = PromptBuilder.load(tmp_path / name)
        tokenizer = Tokenizer.from_file(str(tmp_path / name / "tokenizer.json"))
        before, between, after = builder.pairing
        made = before + builder.read("the tom", 9).ids + between + builder.read("a garden", 9).ids + after
        assert unpack_ids(made) == tokenizer.encode("the tom", "a garden").ids
        single = builder.surrounded(builder.read("the tom", 9).ids)
        assert unpack_ids(single) == tokenizer.encode("the tom").ids
        assert builder.around_tokens == 2
