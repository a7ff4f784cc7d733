"""A listener that keeps what it hears, without an event loop."""

from __future__ import annotations


class Recorder:
    """Every call, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def on_started(self, started) -> None:
        self.calls.append(("started", started.prompt_tokens))

    def on_step(self, token_ids, logprobs, finished) -> None:
        self.calls.append(("step", list(token_ids), [row.logprob for row in logprobs], finished))

    def on_result(self, result) -> None:
        self.calls.append(("result", result))

    def on_failed(self, error) -> None:
        self.calls.append(("failed", error))

    @property
    def ids(self) -> list[int]:
        return [token for call in self.calls if call[0] == "step" for token in call[1]]
