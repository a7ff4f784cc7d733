"""Ties this process to its parent, then becomes another program: `python -m smg.cli.leash PARENT PROGRAM WORD…`.

However the parent dies, the kernel then kills the program; no engine is left behind holding memory. Linux keeps
the tie across exec (prctl(2), PR_SET_PDEATHSIG). Elsewhere there is no such tie, and only an orderly end of the
parent ends the program.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tie_to_parent(parent: int) -> bool:
    """Ask the kernel to kill this process when `parent` dies. Returns False when it is dead already."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have died before the tie was made: then somebody else has adopted us.
    return os.getppid() == parent


def main() -> None:
    """Tie, then become the program named on the command line."""
    parent, program, *words = sys.argv[1:]
    if not tie_to_parent(int(parent)):
        sys.exit(1)
    os.execv(program, [program, *words])  # noqa: S606 -- no shell is wanted, the program is our own choice


if __name__ == "__main__":
    main()
