"""Checks the .proto files: lint, format, breaking changes, and that the generated code is theirs.

buf wants google/api beside our files; they come from the package googleapis-common-protos, so everything runs
offline. Breaking changes are looked for against the commit before: HEAD while files under proto/ are edited, else
HEAD's parent; on another branch, where it left main.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from gen_protos import DESCRIPTOR, ROOT, SOURCE, TARGET, describe, generate, google_include

BUF_CONFIG = "buf.yaml"
GOOGLE_API = "google/api"


def main() -> int:
    """Run every check and return how many failed."""
    parser = argparse.ArgumentParser(description="Check the .proto files.")
    parser.add_argument("--against", help="git commit to compare with (default: the one before)")
    options = parser.parse_args()
    base = options.against or base_commit()
    with tempfile.TemporaryDirectory() as scratch:
        workspace = stage(Path(scratch) / "new", SOURCE)
        failures = [
            not run("buf lint", workspace, "lint", "smg"),
            not run("buf format", workspace, "format", "-d", "--exit-code", "smg"),
            not check_breaking(workspace, base, Path(scratch)),
            not check_generated(Path(scratch) / "generated"),
        ]
    return sum(failures)


def stage(target: Path, source: Path) -> Path:
    """Make a buf workspace of our files and google/api; returns its folder."""
    shutil.copytree(source / "smg", target / "smg")
    shutil.copytree(google_include() / GOOGLE_API, target / GOOGLE_API, ignore=_all_but_protos)
    config = (SOURCE / BUF_CONFIG).read_text()
    # Findings in Google's files are not ours to mend.
    for section in ("lint", "breaking"):
        config = config.replace(f"\n{section}:\n", f"\n{section}:\n  ignore:\n    - google\n")
    (target / BUF_CONFIG).write_text(config)
    return target


def run(name: str, workspace: Path, *words: str) -> bool:
    """Run buf in a workspace; print its findings. Returns whether it found nothing."""
    if words[0] in ("lint", "format"):
        words = (*words[:-1], "--path", words[-1])
    done = subprocess.run(
        [buf(), *words],
        cwd=workspace,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    print(f"{name}: {'ok' if not done.returncode else 'FAILED'}\n{done.stdout}".rstrip())
    return not done.returncode


def buf() -> str:
    """The buf beside this interpreter, so that no activation is needed."""
    beside = Path(sys.executable).with_name("buf")
    return str(beside) if beside.exists() else "buf"


def check_breaking(workspace: Path, base: str, scratch: Path) -> bool:
    """Compare with the protos of another commit."""
    if not base:
        print("buf breaking: no commit to compare with")
        return True
    archive = git_bytes("archive", base, "proto/smg")
    if archive is None:
        print(f"buf breaking: {base} has no proto/smg to compare with")
        return True
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(scratch / "old-tree", filter="data")
    old = stage(scratch / "old", scratch / "old-tree" / "proto")
    return run(f"buf breaking (against {base[:12]})", workspace, "breaking", "--against", str(old))


def check_generated(target: Path) -> bool:
    """Generate again and compare with what is committed."""
    generate(target)
    differences = list(_differences(filecmp.dircmp(TARGET, target, ignore=["__pycache__"])))
    descriptor = target.with_suffix(".pb")
    describe(descriptor)
    if not DESCRIPTOR.exists() or descriptor.read_bytes() != DESCRIPTOR.read_bytes():
        differences.append(str(DESCRIPTOR.relative_to(ROOT)))
    print("generated code: ok" if not differences else "generated code: FAILED, run `make proto`")
    for path in differences:
        print(f"  {path}")
    return not differences


def base_commit() -> str:
    """The commit to compare with; empty when there is none."""
    head, trunk = git("rev-parse", "HEAD"), git("rev-parse", "--verify", "--quiet", "main")
    if not head:
        return ""
    if trunk and trunk != head:
        return git("merge-base", trunk, head)
    return (
        head
        if git("status", "--porcelain", "--", "proto/smg")
        else git("rev-parse", "--verify", "--quiet", "HEAD^")
    )


def git(*words: str) -> str:
    """Output of a git command, stripped; empty when it fails."""
    output = git_bytes(*words)
    return output.decode().strip() if output else ""


def git_bytes(*words: str) -> bytes | None:
    """Output of a git command; None when it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True)
    return None if done.returncode else done.stdout


def _all_but_protos(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not name.endswith(".proto") and not (Path(folder) / name).is_dir()}


def _differences(comparison: filecmp.dircmp[str]) -> list[str]:
    # Equal size and time would be enough for filecmp; here the bytes decide.
    _, unequal, broken = filecmp.cmpfiles(
        comparison.left, comparison.right, comparison.common_files, shallow=False
    )
    here = [*unequal, *broken, *comparison.left_only, *comparison.right_only]
    found = [str(Path(comparison.left) / name) for name in here]
    for inner in comparison.subdirs.values():
        found += _differences(inner)
    return found


if __name__ == "__main__":
    sys.exit(main())
