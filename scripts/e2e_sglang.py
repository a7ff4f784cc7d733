"""Runs `smg worker --engine sglang` on a real SGLang, the contract's checks against it, and a chat through a gateway.

Needs a CUDA GPU, SGLang and a model; says what is missing where something is. Ends with the status of what failed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

MISSING = 2
# A large model takes its time.
READY_S = 1800
ANSWER_S = 120
_PYTHON = (sys.executable, "-m")


def main(arguments: Sequence[str]) -> int:
    """Run everything. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/e2e_sglang.py", description=__doc__)
    parser.add_argument("--model-path", required=True, metavar="DIR", help="model to serve")
    parser.add_argument(
        "--engine-arg", action="append", default=[], metavar="NAME=VALUE", help="as smg worker's"
    )
    options = parser.parse_args(arguments)
    missing = what_is_missing()
    if missing:
        print(f"not run: {missing}", file=sys.stderr)
        return MISSING
    extra = [word for each in options.engine_arg for word in ("--engine-arg", each)]
    worker = (
        "servicers",
        "--engine",
        "sglang",
        "--model-path",
        options.model_path,
        "--model-id",
        "m",
        *extra,
    )
    with running(*worker) as [engine_url]:
        status = subprocess.run([*_PYTHON, "smg", "conformance", engine_url], check=False).returncode
        flags = ("--worker-urls", engine_url, "--host", "127.0.0.1", "--port", "0", "--grpc-port", "0")
        with running("smg", "launch", *flags) as addresses:
            print(f"\nchat through {addresses[0]}: {chat(addresses[0])!r}")
    return status


def what_is_missing() -> str:
    """Why it cannot run here; empty when nothing is missing."""
    if importlib.util.find_spec("sglang") is None:
        return "SGLang is not installed (pip install 'smg[sglang]')"
    question = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    if subprocess.run([sys.executable, "-c", question], capture_output=True, check=False).returncode:
        return "torch sees no CUDA GPU"
    return ""


@contextlib.contextmanager
def running(*words: str) -> Generator[list[str]]:
    """A process, from its ready line on; yields the addresses of that line."""
    process = subprocess.Popen([*_PYTHON, *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit(f"{' '.join(words)}: no ready line but {line!r}")
        yield line.split()[1:]
    finally:
        process.terminate()
        process.wait(READY_S)


def chat(url: str) -> str:
    """What the model answers to a greeting."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
