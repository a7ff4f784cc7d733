"""Turns what the command line says into SGLang's server arguments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servicers.base import CannotStart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from servicers.base import EngineOptions

# What the servicer relies on: outputs that hold all ids so far; a step's outputs told in one turn of the loop, however
# many; prompts never cut in silence.
_REQUIRED: Mapping[str, Any] = {
    "incremental_streaming_output": False,
    "batch_notify_size": 1 << 16,
    "allow_auto_truncate": False,
    "skip_tokenizer_init": False,
}
_DEFAULTS: Mapping[str, Any] = {"log_level": "warning"}


@dataclass(frozen=True, slots=True)
class SglangSettings:
    """What to serve, and how.

    Attributes:
        model_id: name that clients ask for.
        tokenizer_dir: directory of the tokenizer files.
        max_context: longest prompt plus output; None: the model's.
        reasons: SGLang has a reasoning parser, so a form can wait for the end of the reasoning.
        arguments: server arguments by SGLang's names.
    """

    model_id: str
    tokenizer_dir: Path
    max_context: int | None
    reasons: bool
    arguments: Mapping[str, Any]


def settings_from_options(options: EngineOptions) -> SglangSettings:
    """Read the options.

    Raises:
        CannotStart: no model, several, or an argument that the servicer sets itself.
    """
    if len(options.model_paths) != 1:
        raise CannotStart(
            f"engine sglang serves one model: {len(options.model_paths)} --model-path given; allowed: one"
        )
    given = dict(options.engine_args)
    for name, value in _REQUIRED.items():
        if given.get(name, value) != value:
            raise CannotStart(f"--engine-arg {name}={given[name]}: the servicer needs {value}")
    path = Path(options.model_paths[0])
    tokenizer_dir = Path(str(given.get("tokenizer_path") or path))
    arguments: dict[str, Any] = {**_DEFAULTS, "model_path": str(path)}
    if options.max_context is not None:
        arguments["context_length"] = options.max_context
    if options.max_running is not None:
        arguments["max_running_requests"] = options.max_running
    return SglangSettings(
        model_id=options.model_ids[0] if options.model_ids else path.resolve().name,
        tokenizer_dir=tokenizer_dir,
        max_context=options.max_context,
        reasons=bool(given.get("reasoning_parser")),
        arguments={**arguments, **given, **_REQUIRED},
    )
