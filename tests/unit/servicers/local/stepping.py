"""A stepper on a tiny network, driven by hand: send requests, step until nothing is left, look at the events."""

from __future__ import annotations

import collections
from array import array

import torch

from servicers.local.jobs import JobMaker
from servicers.local.model import Model
from servicers.local.stepper import Stepper
from smg_proto.engine.v1 import card_pb2, engine_pb2, work_pb2
from tests.unit.servicers.local.tiny_model import TINY, random_weights

EOS = 1
torch.set_num_threads(1)
WEIGHTS = random_weights(TINY, seed=3)
MODEL = Model.from_state_dict(TINY, WEIGHTS, dtype=torch.float32)


def to_bytes(ids) -> bytes:
    return array("I", ids).tobytes()


def from_bytes(data: bytes) -> list[int]:
    return array("I", data).tolist()


def prompt_of(seed: int, length: int) -> list[int]:
    return torch.randint(
        2, TINY.vocab_size, (length,), generator=torch.Generator().manual_seed(seed)
    ).tolist()


def generate(
    number: int, prompt: list[int], *, output=(), stream=True, logprobs=None, constraint=None, **sampling
):
    """A Generate that takes the likeliest tokens unless told otherwise, and 8 of them."""
    numbers = {"temperature": 0.0, "max_new_tokens": 8, **sampling}
    return work_pb2.Generate(
        sequence=number,
        prompt_ids=to_bytes(prompt),
        output_ids=to_bytes(output),
        sampling=card_pb2.Sampling(**numbers),
        stream=stream,
        logprobs=logprobs,
        constraint=constraint,
    )


class Session:
    """A router's session: keeps what it is told, by sequence."""

    unsent_events = 0

    def __init__(self) -> None:
        self.tokens = collections.defaultdict(list)
        self.logprobs = collections.defaultdict(list)
        self.started, self.finished, self.failed, self.scored, self.embedded = {}, {}, {}, {}, {}
        self.events = []
        self.loads = []

    def emit(self, event: engine_pb2.SessionEvent) -> None:
        self.events.append(event)
        counts = list(event.count) or [1] * len(event.sequence)
        assert sum(counts) == len(event.token)
        tokens = iter(event.token)
        for kind in ("started", "finished", "failed", "scored", "embedded"):
            for item in getattr(event, kind):
                known = getattr(self, kind)
                assert item.sequence not in known, f"{kind} twice"
                known[item.sequence] = item
        for number, count in zip(event.sequence, counts, strict=True):
            assert number in self.started
            self.tokens[number] += [next(tokens) for _ in range(count)]
        for item in event.logprobs:
            self.logprobs[item.sequence] += item.tokens
        if event.HasField("load"):
            self.loads.append(event.load)

    @property
    def ended(self) -> set[int]:
        return {*self.finished, *self.failed, *self.scored, *self.embedded}

    def reason(self, number: int) -> str:
        name = work_pb2.FinishReason.Name(self.finished[number].reason)
        return name.removeprefix("FINISH_REASON_")


class Driver:
    """A stepper with its clock."""

    def __init__(
        self, *, model=MODEL, slots=4, slot_tokens=256, step_tokens=64, max_waiting=16, grammars=None
    ):
        self.calls = collections.deque()
        self.memory = model.new_cache(slots, slot_tokens)
        maker = JobMaker(
            context_tokens=slot_tokens, eos_token_ids=(EOS,), embedding_size=model.config.hidden_size
        )
        self.stepper = Stepper(
            model,
            self.memory,
            maker,
            grammars,
            step_tokens=step_tokens,
            max_waiting=max_waiting,
            call_later=self.calls.append,
        )
        self.now_s = 0.0

    def step(self) -> None:
        while self.calls:
            self.calls.popleft()()
        self.now_s += 0.1
        for session, event in self.stepper.step(self.now_s):
            session.emit(event)

    def submit(self, session: Session, *generates, **lists) -> None:
        self.stepper.submit(session, engine_pb2.SessionRequest(generate=generates, **lists))

    def run(self, session: Session, *generates, **lists) -> Session:
        """Submit and step until all work has ended."""
        self.submit(session, *generates, **lists)
        self.finish()
        return session

    def finish(self) -> None:
        for _ in range(2000):
            self.step()
            if not self.stepper.has_work:
                return
        raise AssertionError("work does not end")

    @property
    def load(self):
        return self.stepper.load.latest


def tokens_of(prompt: list[int], driver: Driver | None = None, **sampling) -> list[int]:
    """What one sequence puts out when it is alone."""
    session = (driver or Driver()).run(Session(), generate(1, prompt, **sampling))
    assert not session.failed
    return session.tokens[1]
