"""`smg launch`: the gateway alone, for engines that run elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.cli.flags import settings_or_exit
from smg.cli.router_run import FAILURE, check_start, readiness_of, run_until_done, say, start_logging
from smg.cli.screen import PlainScreen
from smg.errors import SmgError
from smg.settings import RouterSettings
from smg.workers.discovery import uses_discovery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.server import RouterAddresses

ABOUT = "Start the gateway for engines that run elsewhere. It may start before them, and finds them when they come."


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    settings = settings_or_exit("launch", RouterSettings, arguments, ABOUT)
    check_start("launch", settings)
    if not settings.workers.worker_urls and not uses_discovery(settings.discovery):
        say(
            "smg launch: no workers are given; until some are added, models are answered with 503 (--worker-urls)"
        )
    with start_logging(settings):
        return run_until_done(lambda: _launch(settings))


async def _launch(settings: RouterSettings) -> int:
    from smg.server import serve_router

    try:
        await serve_router(settings, on_ready=_announce)
    except (OSError, SmgError) as error:
        say(f"smg launch: {error}")
        return FAILURE
    return 0


def _announce(addresses: RouterAddresses) -> None:
    PlainScreen().listening(readiness_of(addresses, ()))
