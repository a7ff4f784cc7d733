"""A process that behaves like an engine's servicer, for the tests of whatever starts one.

Arguments: PORT, then words that choose what it does. It says where it serves, and ends at SIGTERM.
"""

import signal
import sys
import time
from pathlib import Path


def main() -> None:
    port, *words = sys.argv[1:]
    options = dict(word.partition("=")[::2] for word in words)
    print("loading the model", file=sys.stderr, flush=True)
    print("2026-01-02 03:04:05,678 WARNING servicers.local the model is old", file=sys.stderr, flush=True)
    if "fail" in options:
        print("no such model", file=sys.stderr, flush=True)
        sys.exit(3)
    if "fail-after-first" in options:
        marker = Path(options["fail-after-first"])
        if marker.exists() and int(marker.read_text()) > 0:
            marker.write_text(str(int(marker.read_text()) - 1))
            sys.exit(4)
        if not marker.exists():
            marker.write_text("2")
    if "stubborn" in options:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "silent" not in options:
        print(f"ready grpc://127.0.0.1:{port if port != '0' else 45123}", flush=True)
    while True:
        time.sleep(60)


main()
