"""`python -m servicers`, which `smg worker` becomes: serves one engine until a signal ends it."""

from __future__ import annotations

import gc
import logging
import os
import sys

from servicers.base import CannotStart
from servicers.flags import parse_command

FAILURE = 1


def main(arguments: list[str]) -> int:
    """Run the command line. Returns the exit status."""
    command = parse_command(arguments)
    # OpenMP's spinning waits ruin a shared machine; it reads this when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # noqa: TID251 -- set for a library, not read
    # A line for each router that fails to agree on TLS is too much.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # noqa: TID251 -- as above
    logging.basicConfig(
        level=command.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    import uvloop

    from servicers.factory import create_engine
    from servicers.serve import CannotListen, serve_until_signal

    try:
        engine = create_engine(command.engine, command.options)
        uvloop.run(
            serve_until_signal(
                engine,
                host=command.host,
                port=command.port,
                limits=command.limits,
                grace_s=command.grace_s,
                on_ready=_announce,
                tls=command.tls,
                speaks_sglang="sglang" in command.also_serve,
            )
        )
    except (CannotStart, CannotListen) as error:
        print(f"smg worker: {error}", file=sys.stderr)  # noqa: T201 -- a command line talks
        return FAILURE
    return 0


def _announce(url: str) -> None:
    # What was built to get here lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    print(f"ready {url}", flush=True)  # noqa: T201 -- whoever started this waits for the line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
