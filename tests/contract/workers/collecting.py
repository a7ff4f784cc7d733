"""Listeners that keep what they are told, and what a test asks of a worker."""

from __future__ import annotations

import asyncio
from array import array

from smg_proto.engine.v1 import work_pb2


class Collector:
    """A GenerateListener that remembers every call."""

    def __init__(self) -> None:
        self.started: list[work_pb2.Started] = []
        self.steps: list[list[int]] = []
        self.logprobs: list[work_pb2.TokenLogprobs] = []
        self.finished: work_pb2.Finished | None = None
        self.error = None
        self.calls_after_end = 0
        self.done = asyncio.get_running_loop().create_future()
        self.first_step = asyncio.Event()

    @property
    def ids(self) -> list[int]:
        return [token for step in self.steps for token in step]

    def on_started(self, started) -> None:
        self.calls_after_end += self.done.done()
        self.started.append(started)

    def on_step(self, token_ids, logprobs, finished) -> None:
        self.calls_after_end += self.done.done()
        self.steps.append(list(token_ids))
        self.logprobs.extend(logprobs)
        self.first_step.set()
        if finished is not None:
            self.finished = finished
            self._end()

    def on_failed(self, error) -> None:
        self.calls_after_end += self.done.done()
        self.error = error
        self._end()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class ResultCollector:
    """A ResultListener whose answer can be awaited."""

    def __init__(self) -> None:
        self.done = asyncio.get_running_loop().create_future()

    def on_result(self, result) -> None:
        self.done.set_result(result)

    def on_failed(self, error) -> None:
        self.done.set_exception(error)


def generate_request(prompt: list[int], *, max_new: int | None = 6, stream: bool = True, **fields):
    request = work_pb2.Generate(prompt_ids=array("I", prompt).tobytes(), stream=stream, **fields)
    if max_new is not None:
        request.sampling.max_new_tokens = max_new
    return request


async def generate(worker, prompt, **options) -> Collector:
    """Run one sequence to its end."""
    collector = Collector()
    worker.generate(generate_request(prompt, **options), collector)
    await collector.done
    return collector


def choices(worker, prompt: list[int], count: int, **options) -> tuple[list[Collector], list[int]]:
    """Submit the choices of one prompt."""
    collectors = [Collector() for _ in range(count)]
    requests = [generate_request(prompt, **options) for _ in collectors]
    for index, request in enumerate(requests):
        request.sampling.choice_index = index
    return collectors, worker.generate_choices(requests, collectors)
