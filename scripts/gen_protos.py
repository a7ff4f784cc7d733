"""Generates proto/smg_proto from the .proto files: messages, stubs and type stubs; and Envoy's descriptor set.

The wire root `smg` would be hidden by the package of that name, so the generated code lives under `smg_proto`
and its imports are rewritten to match. Deterministic: the same sources give the same files.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto"
# The plugins are installed beside the interpreter; the caller's PATH need not have them.
BINARIES = Path(sys.executable).parent
TARGET = SOURCE / "smg_proto"
IMPORT = re.compile(r"^(from|import) smg\.", re.MULTILINE)
# What Envoy's transcoder reads: the edge service with all that it imports.
DESCRIPTOR = ROOT / "deploy" / "envoy" / "smg_edge.pb"
EDGE = "smg/edge/v1/edge.proto"
INIT = '"""Generated from the .proto files by `make proto`; not to be edited."""\n'


def google_include() -> Path:
    """Directory that holds google/api/*.proto, from the package googleapis-common-protos."""
    from google.api import httpbody_pb2

    return Path(httpbody_pb2.__file__).resolve().parents[2]


def run_protoc(words: list[str]) -> int:
    """Run the compiler in this process; returns its exit status."""
    return protoc.main(words)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] -- untyped


def includes() -> list[str]:
    """Where imports are looked for."""
    return [f"-I{SOURCE}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}", f"-I{google_include()}"]


def describe(target: Path) -> None:
    """Write the descriptor set of the edge service."""
    status = run_protoc(["protoc", *includes(), "--include_imports", f"--descriptor_set_out={target}", EDGE])
    if status:
        sys.exit(status)


def generate(target: Path) -> None:
    """Write the generated package to `target`, replacing what is there."""
    sources = sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / "smg").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        status = run_protoc(
            [
                "protoc",
                *includes(),
                f"--python_out={scratch}",
                f"--grpc_python_out={scratch}",
                *(
                    f"--plugin={name}={BINARIES / name}"
                    for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
                ),
                f"--mypy_out=quiet:{scratch}",
                f"--mypy_grpc_out=quiet:{scratch}",
                *sources,
            ]
        )
        if status:
            sys.exit(status)
        produced = Path(scratch) / "smg"
        for path in sorted(produced.rglob("*.py*")):
            text = path.read_text()
            text = IMPORT.sub(r"\1 smg_proto.", text)
            text = (
                re.sub(r"(?<![\w.\"'/])smg\.(\w+)\.v1\.", r"smg_proto.\1.v1.", text)
                if path.suffix == ".pyi"
                else text
            )
            path.write_text(text)
        for folder in [produced, *[p for p in produced.rglob("*") if p.is_dir()]]:
            (folder / "__init__.py").write_text(INIT)
        (produced / "py.typed").write_text("")
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(produced, target)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
    describe(DESCRIPTOR)
