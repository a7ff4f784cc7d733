"""surface_of(): what can be asked of a model is found out from its template and tokenizer, and said in words."""

import pytest

from smg.decisions.kinds import Kind
from smg.pipelines.decide.surface import surface_of
from smg.prompt.builder import PromptBuilder
from tests.tokenizer_dirs import THINKING_TEMPLATE, make_tokenizer_dir
from tests.unit.smg.prompt.test_framed import ALWAYS_THINKS


@pytest.fixture(scope="module")
def decider(decision_tokenizer_dir):
    return PromptBuilder.load(decision_tokenizer_dir)


@pytest.fixture(scope="module")
def unlabelled(tokenizer_dir):
    """Its tokenizer has no token for yes, and its template may think."""
    return PromptBuilder.load(tokenizer_dir)


def test_a_usual_model_is_asked_by_labels(decider):
    surface = surface_of(decider, "auto")
    assert (surface.unsupported, surface.readout, surface.is_hybrid) == ("", "labels", False)
    assert (surface.kinds, surface.max_options) == (tuple(Kind), 255)


def test_it_is_asked_by_its_options_where_the_operator_wants_it(decider):
    assert surface_of(decider, "options").readout == "options"


def test_a_model_whose_options_texts_were_measured_to_be_better_is_asked_so(decider):
    surface = surface_of(decider, "auto", "HuggingFaceTB/SmolLM2-135M-Instruct")
    assert (surface.readout, surface.max_options) == ("mixed", 255)
    assert surface.is_worded(Kind.CHOICE, 26)
    assert not surface.is_worded(Kind.CHOICE, 27)
    assert not surface.is_worded(Kind.NOUL)
    assert surface_of(decider, "labels", "HuggingFaceTB/SmolLM2-135M-Instruct").readout == "labels"


def test_a_tokenizer_without_labels_leaves_the_options_texts(unlabelled):
    surface = surface_of(unlabelled, "auto")
    assert (surface.readout, surface.is_hybrid) == ("options", True)
    assert "labels yes" in surface.label_fault
    refused = surface_of(unlabelled, "labels")
    assert refused.unsupported == surface.label_fault
    assert refused.kinds == ()


def test_a_model_that_always_thinks_cannot_be_asked(tmp_path):
    builder = PromptBuilder.load(make_tokenizer_dir(tmp_path / "m", chat_template=ALWAYS_THINKS))
    assert "reasoning block open" in surface_of(builder, "auto").unsupported


def test_a_model_without_a_template_cannot_be_asked(tmp_path):
    target = make_tokenizer_dir(tmp_path / "m", chat_template=THINKING_TEMPLATE)
    (target / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    assert "no chat template" in surface_of(PromptBuilder.load(target), "auto").unsupported
