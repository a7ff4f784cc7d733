"""Runs a stepper in a thread of its own and carries work in and events out.

The event loop appends commands to a queue and goes on; the thread takes all of them before each step, and hands
all events of a step to the loop at once. Without work it sleeps on a condition. The model is made in the same
thread that computes, because OpenMP keeps a pool of workers for each thread that calls it.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from typing import TYPE_CHECKING

from servicers.local.refusal import INTERNAL, RefusalError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from servicers.local.events import Events
    from servicers.local.stepper import Stepper

    Command = Callable[[Stepper], None]

logger = logging.getLogger(__name__)


WATCH_S = 1.0
"""Between steps while there is work and nothing to compute."""


class ComputeThread:
    """Start it once, stop it once."""

    def __init__(
        self,
        make_stepper: Callable[[ComputeThread], Stepper],
        deliver: Callable[[Events], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Prepare the thread.

        Args:
            make_stepper: loads the model; called in the thread.
            deliver: takes the events of a step; called on the loop.
            loop: where the results go.
        """
        self._make_stepper = make_stepper
        self._deliver = deliver
        self._loop = loop
        self._started: asyncio.Future[Stepper] = loop.create_future()
        self._commands: collections.deque[Command] = collections.deque()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="smg-compute", daemon=True)

    async def start(self) -> Stepper:
        """Start, and wait until the stepper is there. Raises what making it raised."""
        self._thread.start()
        return await self._started

    async def stop(self) -> None:
        """End the thread after the step that it is in."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            await self._loop.run_in_executor(None, self._thread.join)

    def call(self, command: Command) -> None:
        """Run a command in the thread before its next step. From any thread."""
        with self._changed:
            self._commands.append(command)
            self._changed.notify()

    def _run(self) -> None:
        try:
            stepper = self._make_stepper(self)
        except BaseException as error:  # noqa: BLE001 - whoever waits for the start gets it
            self._on_loop(self._fail_start, error)
            return
        self._on_loop(self._end_start, stepper)
        while self._take_commands(stepper):
            events = _step(stepper)
            if events:
                self._on_loop(self._deliver, events)

    def _take_commands(self, stepper: Stepper) -> bool:
        """Wait for work and run what was sent. False when the thread should end."""
        with self._changed:
            while not (self._commands or stepper.can_step or self._is_stopping):
                # Work that cannot be computed yet is looked after all the same.
                if not self._changed.wait(WATCH_S if stepper.has_work else None):
                    break
            if self._is_stopping:
                return False
            commands, self._commands = self._commands, collections.deque()
        for command in commands:
            try:
                command(stepper)
            except Exception:
                logger.exception("a command of a session failed")
        return True

    def _end_start(self, stepper: Stepper) -> None:
        if not self._started.done():
            self._started.set_result(stepper)

    def _fail_start(self, error: BaseException) -> None:
        if not self._started.done():
            self._started.set_exception(error)

    def _on_loop(self, function: Callable[..., None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            # The loop has closed without stopping the engine; nobody is left to tell.
            logger.warning("the event loop is gone; the engine ends")
            self._is_stopping = True


def _step(stepper: Stepper) -> Events:
    try:
        return stepper.step(time.monotonic())
    except Exception:
        # A step confines its faults; this is one outside of every job, so all of them are suspect.
        logger.exception("a step could not be told; all work is lost")
        return stepper.lose_everything(
            RefusalError("the engine failed in a step", code=INTERNAL, is_retryable=True)
        )
