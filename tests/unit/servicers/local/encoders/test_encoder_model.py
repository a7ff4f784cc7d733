"""Encoders give what the `transformers` package gives with sentence-transformers' pooling on top, alone and in batches."""

import json

import pytest
import torch
import transformers
from torch.nn import functional

from servicers.local.config import ModelFileError
from servicers.local.encoders.files import find_default_encoder, is_encoder, read_encoder
from servicers.local.encoders.model import Row, load_encoder_model
from smg.prompt.builder import PromptBuilder
from smg.prompt.packed import unpack_ids
from tests import tiny_encoder

pytestmark = pytest.mark.model

IDS = [[5, 9, 300], [17], list(range(40, 80)), [600, 2, 3, 4, 650, 12]]


def load(path, **declared):
    return load_encoder_model(path, dtype=torch.float32, device="cpu", declared=declared)


@pytest.fixture(scope="module", params=["bert", "roberta"])
def embedder(request, tmp_path_factory):
    target = tmp_path_factory.mktemp("encoder") / request.param
    return tiny_encoder.write_embedder(target, roberta=request.param == "roberta")


def states(path, ids, layer=-1):
    """What transformers computes for one input, [tokens, hidden_size]."""
    model = transformers.AutoModel.from_pretrained(path).eval()
    with torch.inference_mode():
        return model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]


def pooled(rows, how):
    return {"mean": rows.mean(dim=0), "cls": rows[0], "max": rows.max(dim=0).values, "lasttoken": rows[-1]}[
        how
    ]


@pytest.mark.parametrize("how", ["mean", "cls", "max", "lasttoken"])
def test_vectors_equal_those_of_transformers_for_every_pooling(embedder, how):
    found = load(embedder, pooling=how).compute([Row(ids) for ids in IDS])
    for ids, vector in zip(IDS, found, strict=True):
        expected = functional.normalize(pooled(states(embedder, ids), how), dim=-1)
        torch.testing.assert_close(torch.tensor(vector), expected, atol=2e-6, rtol=1e-5)


def test_a_layer_and_a_length_are_taken_before_the_vector_is_scaled(embedder):
    rows = [Row(IDS[0], layer=1), Row(IDS[2]), Row(IDS[3], layer=1, dimensions=8)]
    first, last, cut = load(embedder).compute(rows)
    expected = functional.normalize(states(embedder, IDS[0], 1).mean(dim=0), dim=-1)
    torch.testing.assert_close(torch.tensor(first), expected, atol=2e-6, rtol=1e-5)
    expected = functional.normalize(states(embedder, IDS[2]).mean(dim=0), dim=-1)
    torch.testing.assert_close(torch.tensor(last), expected, atol=2e-6, rtol=1e-5)
    expected = functional.normalize(states(embedder, IDS[3], 1).mean(dim=0)[:8], dim=-1)
    torch.testing.assert_close(torch.tensor(cut), expected, atol=2e-6, rtol=1e-5)


def test_without_a_module_that_scales_vectors_stay_as_they_are_unless_they_are_cut(tmp_path):
    path = tiny_encoder.write_embedder(tmp_path / "m", pooling="cls", normalize=False)
    whole, cut = load(path).compute([Row(IDS[0]), Row(IDS[0], dimensions=4)])
    torch.testing.assert_close(torch.tensor(whole), states(path, IDS[0])[0], atol=2e-6, rtol=1e-5)
    assert torch.tensor(cut).norm().item() == pytest.approx(1, abs=1e-6)


def test_classifiers_give_the_logits_of_transformers(tmp_path):
    path = tiny_encoder.write_classifier(tmp_path / "classifier", steps=10)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(path).eval()
    found = load(path).compute([Row(ids) for ids in IDS] + [Row([2, 9, 3, 8, 3], second_at=3)])
    with torch.inference_mode():
        expected = [model(torch.tensor([ids])).logits[0] for ids in IDS]
        types = torch.tensor([[0, 0, 0, 1, 1]])
        expected.append(model(torch.tensor([[2, 9, 3, 8, 3]]), token_type_ids=types).logits[0])
    torch.testing.assert_close(torch.tensor(found), torch.stack(expected), atol=1e-4, rtol=1e-5)


def test_taggers_give_a_row_of_logits_for_every_token(tmp_path):
    path = tiny_encoder.write_tagger(tmp_path / "tagger", steps=10)
    model = transformers.AutoModelForTokenClassification.from_pretrained(path).eval()
    for ids, found in zip(IDS, load(path).compute([Row(ids) for ids in IDS]), strict=True):
        with torch.inference_mode():
            expected = model(torch.tensor([ids])).logits[0]
        torch.testing.assert_close(torch.tensor(found).view(len(ids), -1), expected, atol=1e-4, rtol=1e-5)


def test_a_model_whose_answers_are_not_finite_is_not_served(tmp_path):
    from safetensors.torch import load_file, save_file

    path = tiny_encoder.write_embedder(tmp_path / "broken")
    weights = load_file(path / "model.safetensors")
    weights["encoder.layer.1.output.dense.bias"][3] = float("nan")
    save_file(weights, path / "model.safetensors")
    with pytest.raises(ModelFileError, match="self-check is not finite"):
        load(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "swish"}, "hidden_act 'swish'"),
        ({"model_type": "t5"}, "model_type 't5'"),
        ({"hidden_size": "x"}, "hidden_size of config.json is 'x'"),
        ({"embedding_layers": [3]}, "layers has 3; allowed: whole numbers from 1 to 2"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused_by_name(tmp_path, change, words):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    with pytest.raises(ModelFileError, match=words):
        read_encoder(tmp_path)


CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "max_position_embeddings": 64,
}


def test_encoders_are_told_from_chat_models(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert is_encoder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "llama"}))
    assert not is_encoder(tmp_path)
    assert not is_encoder(tmp_path / "nowhere")
    # Module lists name what is done to the vectors; what is not known is not left out in silence.
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense"}]))
    with pytest.raises(ModelFileError, match="'Dense' is not served"):
        read_encoder(tmp_path)


DEFAULT = find_default_encoder()


@pytest.mark.skipif(DEFAULT is None, reason="the default embedder's package is not installed")
def test_the_default_embedder_gives_what_transformers_gives_from_text():
    texts = [
        "How do I reset my password?",
        "Open Settings, then Security.",
        "Our offices are closed on Sunday. 👋🏽",
    ]
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEFAULT)
    builder = PromptBuilder.load(DEFAULT)
    rows = [Row(unpack_ids(builder.surrounded(builder.read(text, 254).ids))) for text in texts]
    assert [list(row.ids) for row in rows] == [tokenizer(text).input_ids for text in texts]
    found = torch.tensor(load(DEFAULT).compute(rows))
    for row, vector in zip(rows, found, strict=True):
        expected = functional.normalize(states(DEFAULT, row.ids).mean(dim=0), dim=-1)
        torch.testing.assert_close(vector, expected, atol=2e-6, rtol=1e-5)
    near, far = found[0] @ found[1], found[0] @ found[2]
    assert near > far + 0.2
