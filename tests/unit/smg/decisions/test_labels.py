"""Labels: only what is one distinct token counts, and each kind of question gets its own."""

import pytest

from smg.decisions.kinds import Kind
from smg.decisions.labels import find_labels


def vocabulary(*, lead="", without=(), same=()):
    """A tokenizer that has every label as one token, but for those without; those in `same` share one."""

    def token(text):
        name = text.removeprefix(lead)
        if not text.startswith(lead) or name in without or (not lead and text.startswith(" ")):
            return None
        return 7 if name in same else sum(ord(each) * 300**place for place, each in enumerate(name))

    return token


def test_all_alphabets_of_a_usual_tokenizer():
    labels = find_labels(vocabulary())
    assert labels.faults == ()
    assert labels.max_options == 676
    assert labels.for_question(Kind.NOUL, 0).names == ("yes", "no")
    assert labels.for_question(Kind.CHOICE, 3).names == ("A", "B", "C")
    assert labels.for_question(Kind.SCORE, 10).names[-1] == "9"


@pytest.mark.parametrize(("options", "first", "last"), [(26, "A", "Z"), (27, "AA", "BA"), (255, "AA", "JU")])
def test_beyond_26_options_all_get_pairs(options, first, last):
    labels = find_labels(vocabulary()).for_question(Kind.CHOICE, options)
    assert (labels.names[0], labels.names[-1], len(set(labels.ids))) == (first, last, options)


def test_pairs_that_are_no_token_are_left_out():
    labels = find_labels(vocabulary(without=("AB", "AD")))
    assert labels.for_question(Kind.CHOICE, 30).names[:3] == ("AA", "AC", "AE")
    assert labels.faults == ()


def test_a_label_that_is_no_token_is_named():
    assert "labels yes are not one distinct token" in find_labels(vocabulary(without=("yes",))).faults[0]


def test_labels_that_share_a_token_are_no_labels():
    assert find_labels(vocabulary(same=("A", "B"))).letters.missing == ("B",)


def test_a_tokenizer_that_keeps_the_blank_gets_labels_with_it():
    labels = find_labels(vocabulary(lead=" "))
    assert labels.faults == ()
    assert labels.noul.names == ("yes", "no")
