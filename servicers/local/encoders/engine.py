"""An encoder behind the servicer's Engine interface: what has come while one batch was computed is the next batch.

One thread loads and computes, because OpenMP keeps a pool of workers for each thread that calls it. This module imports
no torch, so that the process answers health checks while torch loads.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from servicers.base import CannotStart, Engine
from servicers.checks import RESOURCE_EXHAUSTED
from servicers.local.refusal import INTERNAL
from servicers.token_bytes import ids_from_bytes
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from servicers.base import EventSink
    from servicers.local.encoders.model import EncoderModel, Row

_log = logging.getLogger(__name__)
_KINDS = {
    "embed": card_pb2.CLASSIFY_KIND_UNSPECIFIED,
    "sequence": card_pb2.CLASSIFY_KIND_EXCLUSIVE,
    "tokens": card_pb2.CLASSIFY_KIND_TOKENS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSettings:
    """What to serve.

    Attributes:
        path: directory of the model.
        model_id: name that clients ask for.
        max_context: longest input in tokens; None: the model's own, which is never exceeded.
        device: "cpu" or "cuda".
        dtype: "bf16" or "fp32"; on a CPU always the latter, the models are small.
        threads: of torch; None: its own choice.
        declared: what a models file says: dimensions, layers, pooling, normalize.
        batch_inputs: most inputs that are taken together.
        batch_tokens: most tokens of one forward, padding counted; a longer input is computed alone.
        max_waiting: most inputs that wait; more are refused.
    """

    path: Path
    model_id: str
    max_context: int | None = None
    device: str = "cpu"
    dtype: str = "bf16"
    threads: int | None = None
    declared: dict[str, Any] | None = None
    batch_inputs: int = 64
    batch_tokens: int = 8192
    max_waiting: int = 8192


class _Job(NamedTuple):
    session: EventSink
    request: work_pb2.Embed | work_pb2.Classify

    @property
    def key(self) -> tuple[EventSink, int]:
        return self.session, self.request.sequence

    @property
    def tokens(self) -> int:
        return len(self.request.input_ids) // 4


class EncoderEngine(Engine):
    """See servicers.base.Engine."""

    name = "local"

    def __init__(self, settings: EncoderSettings) -> None:
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="smg-encoder")
        self._model: EncoderModel | None = None
        self._description = card_pb2.DescribeResponse()
        self._waiting: dict[tuple[EventSink, int], _Job] = {}
        self._computing: dict[tuple[EventSink, int], _Job] = {}
        self._waiting_tokens = 0
        self._steps = 0
        self._worker: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Load the model in the thread."""
        try:
            model = await asyncio.get_running_loop().run_in_executor(self._thread, self._load)
        except (ValueError, OSError, MemoryError, RuntimeError) as error:
            raise CannotStart(str(error)) from error
        self._model = model
        self._description = self._describe(model)
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """End the thread after the batch that it is in."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._waiting.clear()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    def describe(self) -> card_pb2.DescribeResponse:
        """What is served."""
        return self._description

    def submit(self, session: EventSink, request: engine_pb2.SessionRequest) -> None:
        """Queue inputs; aborts are answered at once."""
        event = engine_pb2.SessionEvent()
        for item in (*request.embed, *request.classify):
            if len(self._waiting) >= self._settings.max_waiting:
                event.failed.add(
                    sequence=item.sequence,
                    code=RESOURCE_EXHAUSTED,
                    message=f"{len(self._waiting)} inputs wait; allowed: at most {self._settings.max_waiting}",
                    is_retryable=True,
                )
                continue
            job = _Job(session, item)
            self._waiting[job.key] = job
            self._waiting_tokens += job.tokens
        for number in request.abort:
            job = self._drop_waiting((session, number)) or self._computing.pop((session, number), None)
            if job is not None:
                event.finished.add(sequence=number, reason=work_pb2.FINISH_REASON_ABORT)
        if event.failed or event.finished:
            session.emit(event)
        if self._waiting:
            self._wake.set()

    def close(self, session: EventSink) -> None:
        """Forget a session and its inputs."""
        for key in [key for key in self._waiting if key[0] is session]:
            self._drop_waiting(key)
        for key in [key for key in self._computing if key[0] is session]:
            del self._computing[key]

    def load(self) -> card_pb2.Load:
        """The load."""
        return card_pb2.Load(
            running=len(self._computing),
            waiting=len(self._waiting),
            waiting_uncached_tokens=self._waiting_tokens,
            steps=self._steps,
        )

    def flush_cache(self) -> int:
        """There is none."""
        return 0

    def tokenizer_dir(self, model: str) -> Path | None:
        """Directory of the model."""
        return self._settings.path if model in ("", self._settings.model_id) else None

    def _drop_waiting(self, key: tuple[EventSink, int]) -> _Job | None:
        job = self._waiting.pop(key, None)
        if job is not None:
            self._waiting_tokens -= job.tokens
        return job

    async def _work(self) -> None:
        """Compute batch after batch, for as long as the engine runs."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                for batch in self._take():
                    alive = [job for job in batch if job.key in self._computing]
                    if alive:
                        answers = await loop.run_in_executor(self._thread, self._compute, alive)
                        self._steps += 1
                        self._tell(alive, answers)

    def _take(self) -> list[list[_Job]]:
        """The inputs that have waited longest, in batches of about the same length."""
        keys = list(self._waiting)[: self._settings.batch_inputs]
        jobs = [job for key in keys if (job := self._drop_waiting(key)) is not None]
        self._computing = {job.key: job for job in jobs}
        return list(batches(jobs, self._settings.batch_tokens))

    def _compute(self, jobs: Sequence[_Job]) -> list[list[float] | str]:
        """In the thread: an answer for every job, or why there is none. One that fails takes no other with it."""
        assert self._model is not None  # noqa: S101 - it has started
        rows = [_row(job.request) for job in jobs]
        try:
            return list(self._model.compute(rows))
        except Exception as error:  # noqa: BLE001 - whatever broke, the sequences must end
            if len(rows) == 1:
                _log.exception("an input could not be computed")
                return [f"the engine failed at this input: {error}"]
        answers: list[list[float] | str] = []
        for job in jobs:
            answers += self._compute([job])
        return answers

    def _tell(self, jobs: Sequence[_Job], answers: Sequence[list[float] | str]) -> None:
        events: dict[EventSink, engine_pb2.SessionEvent] = collections.defaultdict(engine_pb2.SessionEvent)
        for job, answer in zip(jobs, answers, strict=True):
            if self._computing.pop(job.key, None) is None:
                continue
            event, number = events[job.session], job.request.sequence
            if not isinstance(answer, str) and not all(map(math.isfinite, answer)):
                answer = "the model's answer to this input is not finite"  # noqa: PLW2901 - the answer is that
            if isinstance(answer, str):
                event.failed.add(sequence=number, code=INTERNAL, message=answer)
            elif isinstance(job.request, work_pb2.Embed):
                event.embedded.add(sequence=number, values=answer, prompt_tokens=job.tokens)
            else:
                event.classified.add(sequence=number, logits=answer, prompt_tokens=job.tokens)
        for session, event in events.items():
            session.emit(event)

    def _load(self) -> EncoderModel:
        """In the thread."""
        import torch

        from servicers.local.encoders.model import load_encoder_model

        settings = self._settings
        if settings.device != "cpu" and not torch.cuda.is_available():
            raise CannotStart(f"device {settings.device!r} is not there: torch finds no CUDA device")
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        dtype = torch.bfloat16 if settings.dtype == "bf16" and settings.device != "cpu" else torch.float32
        return load_encoder_model(
            settings.path, dtype=dtype, device=settings.device, declared=settings.declared
        )

    def _describe(self, model: EncoderModel) -> card_pb2.DescribeResponse:
        config, settings = model.config, self._settings
        is_embedder = config.task == "embed"
        form = f"{config.pooling}, {'normalized' if config.normalizes else 'as computed'}"
        kind = card_pb2.CLASSIFY_KIND_INDEPENDENT if config.is_independent else _KINDS[config.task]
        card = card_pb2.ModelCard(
            id=settings.model_id,
            path=str(settings.path),
            context_length=min(config.context_tokens, settings.max_context or config.context_tokens),
            vocab_size=config.vocab_size,
            pad_token_id=config.pad_token_id,
            architecture=config.architecture,
            model_type=config.family,
            capabilities=card_pb2.Capabilities(embed=is_embedder, classify=not is_embedder),
            embedding_size=config.hidden_size if is_embedder else 0,
            embedding_dimensions=config.dimensions,
            embedding_layers=config.embedding_layers,
            embedding_form=form if is_embedder else "",
            labels=config.labels,
            classify_kind=kind,
            dtype=str(model.dtype).removeprefix("torch."),
            device=model.device.type,
            is_exact=False,
        )
        return card_pb2.DescribeResponse(
            models=[card], engine=self.name, engine_version=_version(), max_running=settings.batch_inputs
        )


def batches(jobs: Iterable[_Job], most_tokens: int) -> Iterable[list[_Job]]:
    """Jobs in batches whose tokens, every job padded to the longest, are at most so many; longest jobs last."""
    batch: list[_Job] = []
    for job in sorted(jobs, key=lambda job: job.tokens):
        if batch and (len(batch) + 1) * job.tokens > most_tokens:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


def _row(request: work_pb2.Embed | work_pb2.Classify) -> Row:
    from servicers.local.encoders.model import Row

    ids = ids_from_bytes(request.input_ids)
    if isinstance(request, work_pb2.Classify):
        return Row(ids, request.second_at if request.HasField("second_at") else None)
    dimensions = request.dimensions if request.HasField("dimensions") else None
    return Row(ids, None, request.layer if request.HasField("layer") else 0, dimensions)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("smg")
    except PackageNotFoundError:
        return "unknown"
