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
    from collections.abc import Callable, Sequence

    from smg.server import RouterAddresses
    from smg.telemetry.siblings import Siblings

ABOUT = "Start the gateway for engines that run elsewhere. It may start before them, and finds them when they come."


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    settings = settings_or_exit("launch", RouterSettings, arguments, ABOUT)
    check_start("launch", settings)
    if not settings.workers.worker_urls and not uses_discovery(settings.discovery):
        say(
            "smg launch: no workers are given; until some are added, models are answered with 503 (--worker-urls)"
        )
    if settings.listener.processes > 1:
        return _run_several(settings)
    with start_logging(settings):
        return run_until_done(lambda: _launch(settings, _announce))


def _run_several(settings: RouterSettings) -> int:
    from smg.cli.processes import Processes

    if settings.history.history_backend == "memory":
        say(
            "smg launch: history is kept in memory, by each process for itself: responses and conversations are found only where "
            "they were made; choose another --history-backend, or none"
        )
    return Processes(settings, _run_one).run()


def _run_one(
    settings: RouterSettings, siblings: Siblings, on_ready: Callable[[RouterAddresses], None], life: int
) -> int:
    """Run one process of several."""
    with start_logging(settings):
        return run_until_done(lambda: _launch(settings, on_ready, siblings, life))


async def _launch(
    settings: RouterSettings,
    on_ready: Callable[[RouterAddresses], None],
    siblings: Siblings | None = None,
    life: int | None = None,
) -> int:
    from smg.server import serve_router

    try:
        await serve_router(settings, on_ready=on_ready, siblings=siblings, life=life)
    except (OSError, SmgError) as error:
        say(f"smg launch: {error}")
        return FAILURE
    return 0


def _announce(addresses: RouterAddresses) -> None:
    PlainScreen().listening(readiness_of(addresses, ()))
