"""`python -m smg` and the console script `smg`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its status."""
    from smg.cli.main import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
