"""The engines that the contract suite runs on. A new engine is one line in LAUNCHERS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from servicers.base import EngineOptions
from servicers.factory import create_engine
from servicers.sglang.servicer import SglangEngine
from servicers.sglang.settings import settings_from_options
from tests.contract.servicers.sglang_stand_in import StandInPackage
from tests.tiny_checkpoint import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from servicers.base import Engine


@dataclass(frozen=True)
class Launcher:
    """How to make an engine for the suite.

    Attributes:
        engine: name as in `smg worker --engine`.
        options: makes its options; is given the directory of a small tokenizer.
        marks: pytest marks, for engines that need something that is not always there.
        name: in the names of tests; the engine's where it is empty.
        make: makes the engine from its name and options.
    """

    engine: str
    options: Callable[[Path], EngineOptions]
    marks: Sequence[pytest.MarkDecorator] = ()
    name: str = ""
    make: Callable[[str, EngineOptions], Engine] = create_engine

    def create(self, tokenizer_dir: Path) -> Engine:
        """Make the engine; it is not started."""
        return self.make(self.engine, self.options(tokenizer_dir))


def sglang_on_stand_in(_: str, options: EngineOptions) -> SglangEngine:
    """SGLang's servicer, over what stands in for SGLang."""
    return SglangEngine(settings_from_options(options), StandInPackage())


LAUNCHERS = [
    # A step takes a little time, so that an abort can come between two of them.
    Launcher(
        "echo", lambda tokenizer_dir: EngineOptions((str(tokenizer_dir),), ("tiny",), step_seconds=0.002)
    ),
    Launcher(
        "sglang",
        lambda tokenizer_dir: EngineOptions((str(tokenizer_dir),), ("tiny",), max_context=1024),
        make=sglang_on_stand_in,
    ),
    # One thread: two wait for each other by spinning where the environment does not tell OpenMP otherwise. A short
    # context, for one test fills it.
    Launcher(
        "local",
        lambda tokenizer_dir: EngineOptions(
            (str(write_checkpoint(tokenizer_dir)),), ("tiny",), dtype="fp32", threads=1, max_context=1024
        ),
        (pytest.mark.model,),
    ),
    Launcher(
        "local",
        lambda _: EngineOptions(dtype="fp32", threads=1, max_context=1024),
        (pytest.mark.model, pytest.mark.long),
        "default-model",
    ),
]
