"""What several of these tests need."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from benchmarks.gateway.prompts import PromptWriter


@pytest.fixture(scope="session")
def byte_writer(tmp_path_factory: pytest.TempPathFactory) -> PromptWriter:
    """A writer on a tokenizer without merges: one token for each byte."""
    directory = tmp_path_factory.mktemp("tokenizer")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
    return PromptWriter(directory)
