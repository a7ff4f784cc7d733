"""Prompts for filling in: made for models that have the tokens, and out of text that cannot become such a token."""

import shutil
from types import SimpleNamespace

import orjson
import pytest
from tokenizers import AddedToken, Tokenizer

from smg.errors import ContextTooLong, InvalidRequest
from smg.pipelines.infill import FILL_TOKENS, fill_tokens, infill_prompt
from smg.prompt.builder import PromptBuilder
from smg.prompt.packed import unpack_ids
from smg_proto.engine.v1 import card_pb2


def model(builder, context=0):
    return SimpleNamespace(id="m", builder=builder, card=card_pb2.ModelCard(id="m", context_length=context))


@pytest.fixture(scope="module", params=FILL_TOKENS, ids=lambda names: names[0])
def fill(request, tmp_path_factory, tokenizer_dir):
    """A model's builder and its three tokens."""
    directory = shutil.copytree(tokenizer_dir, tmp_path_factory.mktemp("fill") / "model")
    path = directory / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in request.param])
    path.write_bytes(orjson.dumps(orjson.loads(tokenizer.to_str())))
    return PromptBuilder.load(directory), [tokenizer.token_to_id(name) for name in request.param]


def test_the_prompt_is_prefix_and_suffix_between_the_models_three_tokens(fill):
    builder, (before, between, after) = fill
    prompt = infill_prompt(model(builder), builder.text("def f("), "): pass")
    left, right = (unpack_ids(builder.tokenizer.encode(text)) for text in ("def f(", "): pass"))
    assert unpack_ids(prompt.ids) == [before, *left, between, *right, after]
    assert (prompt.tokens, prompt.text) == (len(left) + len(right) + 3, "def f(")


def test_what_the_texts_spell_is_no_token(fill):
    builder, tokens = fill
    spelled = "".join(builder.tokenizer.token_text(token) for token in tokens)
    prompt = infill_prompt(model(builder), builder.text(spelled), spelled)
    ids = unpack_ids(prompt.ids)
    assert [token for token in ids if token in tokens] == tokens


def test_a_prompt_longer_than_the_context_with_its_suffix_is_refused(fill):
    builder, _ = fill
    prefix = builder.text("a b c")
    with pytest.raises(ContextTooLong):
        infill_prompt(model(builder, context=prefix.tokens + 5), prefix, "d e f g h i j")


def test_a_model_without_the_tokens_refuses_a_suffix(tokenizer_dir):
    builder = PromptBuilder.load(tokenizer_dir)
    assert fill_tokens(builder.tokenizer) is None
    with pytest.raises(InvalidRequest, match="suffix is set, and the model m cannot fill in") as caught:
        infill_prompt(model(builder), builder.text("a"), "b")
    assert caught.value.param == "suffix"
