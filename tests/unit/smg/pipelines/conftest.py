"""The prompt code of one model, which no test changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from smg.prompt.builder import PromptBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from smg.prompt.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def builder(tokenizer_dir: Path) -> PromptBuilder:
    return PromptBuilder.load(tokenizer_dir)


@pytest.fixture(scope="session")
def tokenizer(builder: PromptBuilder) -> Tokenizer:
    return builder.tokenizer
