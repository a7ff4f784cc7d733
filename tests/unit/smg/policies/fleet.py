"""Workers with loads, for tests that place requests and end them."""

from __future__ import annotations

from collections import Counter, deque

from smg.types.worker import WorkerSnapshot


class Fleet:
    """Workers that work on the last so many requests each, all together."""

    def __init__(self, size: int, running: int, slots: int = 64) -> None:
        self.counts: Counter[str] = Counter()
        self._running = running
        self._slots = slots
        self._inflight = [0] * size
        self._line: deque[int] = deque()

    def pictures(self) -> tuple[WorkerSnapshot, ...]:
        return tuple(
            WorkerSnapshot(
                f"w{index}", f"grpc://h:{index + 1}", busy, busy, 0, busy / self._slots, slots=self._slots
            )
            for index, busy in enumerate(self._inflight)
        )

    def place(self, policy, request) -> WorkerSnapshot:
        """Place one request; the oldest ends when there are too many."""
        worker = policy.pick(self.pictures(), request)
        index = int(worker.id[1:])
        self.counts[worker.id] += 1
        self._inflight[index] += 1
        self._line.append(index)
        if len(self._line) > self._running:
            self._inflight[self._line.popleft()] -= 1
        return worker
