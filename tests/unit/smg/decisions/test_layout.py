"""The prompt: its words are part of the answers, so a change shows here and counts PROMPT_VERSION up."""

from smg.decisions.layout import (
    PROMPT_VERSION,
    STEM,
    ShownOption,
    choice_text,
    noul_text,
    score_text,
    set_text,
    span_text,
)


def test_the_words_of_version_1():
    assert PROMPT_VERSION == 1
    assert STEM == "\n\nQuestion"
    options = [ShownOption("billing", "Payments"), ShownOption("sales")]
    assert choice_text("Which team?", options, ("A", "B")) == (
        ": Which team?\nA: billing - Payments\nB: sales\nAnswer with only the letter of the best option."
    )
    assert score_text("", [ShownOption("", "low"), ShownOption("", "high")], ("0", "1")) == (
        ": Which level fits the text above best?\n0: low\n1: high\n"
        "Answer with only the number of the best level."
    )
    assert noul_text("It is late.") == (": Is the following true? It is late.\nAnswer with only yes or no.")


def test_outcomes_stand_below_the_question():
    assert "\nyes: a refund is due\nAnswer" in noul_text("Refund?", "a refund is due")
    assert noul_text("", no="nothing is due").startswith(
        ": Which of these describes the text above?\nno: nothing"
    )


def test_without_labels_the_options_answer_themselves():
    assert choice_text("Which?", [ShownOption("a"), ShownOption("b", "bee")], None) == (
        ": Which?\n- a\n- b - bee\nAnswer with only the best option."
    )


def test_a_label_and_a_quoted_place_are_asked_about():
    label = ShownOption("EMAIL", "An address")
    assert 'Is "a@b.c" in the text above this: EMAIL?\nAn address\n' in span_text("Find it.", label, "a@b.c")
    assert set_text("", label).startswith(": Does this apply: EMAIL?")


def test_every_ending_begins_where_no_tokenizer_joins():
    label = ShownOption("x")
    endings = [
        noul_text("a"),
        choice_text("a", [label], ("A",)),
        set_text("", label),
        span_text("", label, "w"),
    ]
    assert all(ending[0] == ":" for ending in endings)
    assert STEM[-1].isalpha()
