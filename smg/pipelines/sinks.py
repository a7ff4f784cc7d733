"""Where an answer goes: the one interface between the pipelines and whoever writes to the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.errors import SmgError
    from smg.parsers.events import Piece
    from smg.pipelines.logprobs import Logprobs


@dataclass(slots=True)
class UsageCounter:
    """Token counts of a request while it runs; the fields of smg.common.v1.Usage."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0


class AnswerHead(NamedTuple):
    """What is known when the first event of an answer arrives.

    Attributes:
        id: the answer's id.
        created: unix time in seconds.
        model: model as the client named it.
        worker_url: worker that answers.
        usage: counts so far; changes while the answer runs.
        parsers: what reads the model's text; empty where nothing does.
    """

    id: str
    created: int
    model: str
    worker_url: str
    usage: UsageCounter
    parsers: str = ""


class ChoiceFinish(NamedTuple):
    """Why a choice ended.

    Attributes:
        reason: OpenAI's finish_reason.
        matched_stop: token id or text that ended it; None for anything else.
    """

    reason: str
    matched_stop: int | str | None = None


class AnswerSink(Protocol):
    """Writes one answer. Called on the event loop; no method blocks or raises.

    Order: open, then for each choice any number of pieces or fragments and one finish, then close; or fail at any
    point after open and nothing more. Calls may be gathered until flush; fragments flush by themselves.
    """

    accepts_fragments: bool
    """The fragment methods may be called: text goes out as JSON, and a chunk carries nothing but the text."""

    def open(self, head: AnswerHead) -> None:
        """The first event of the answer is here. What fails before this is raised by the pipeline instead."""
        ...

    def fragment(self, index: int, fragment: bytes) -> None:
        """More content of a choice, as the inside of a JSON string in UTF-8. The fast lane of pieces()."""
        ...

    def reasoning_fragment(self, index: int, fragment: bytes) -> None:
        """More reasoning of a choice, in the same form."""
        ...

    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Logprobs) -> None:
        """More of a choice.

        Args:
            index: the choice.
            pieces: what its text turned into, in order; perhaps none. A CallStart has its id.
            logprobs: of the tokens that brought the pieces, if asked for. Tokens of a piece that is still held back
                come with the pieces before it.
        """
        ...

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """A choice has ended."""
        ...

    def close(self) -> None:
        """All choices have ended; the counts in AnswerHead.usage are final."""
        ...

    def fail(self, error: SmgError) -> None:
        """The answer cannot be completed."""
        ...

    def flush(self) -> None:
        """Write what has gathered, in one piece."""
        ...

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The client has not taken what was written, so what is long should wait; go_on is called when it has.

        It is called once, perhaps without a reason, and perhaps never if the client leaves.
        """
        ...

    def keep(self, indexes: Sequence[int]) -> None:
        """Of all choices these are the answer's, numbered in this order. Before close; never for a stream."""
        ...
