"""Carries an answer from the engine's callbacks to a client that reads at its own pace.

The sink puts text in, the call's own coroutine takes pieces out and writes them. While a write waits for the client,
what comes meanwhile is merged per choice, up to a bound; a client that stays behind it loses its answer, nobody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from smg.errors import Overloaded, SmgError
from smg.parsers.events import CallArguments, CallBroken, CallStart, Content, Reasoning
from smg.pipelines.logprobs import TokenRows
from smg_proto.chat.v1 import chunk_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from smg.parsers.events import Piece
    from smg.pipelines.logprobs import Logprobs
    from smg.pipelines.sinks import ChoiceFinish
    from smg_proto.common.v1 import common_pb2

# What a held string or entry costs beside its own bytes, about.
ITEM_BYTES = 64
# Text is merged into messages of about this size: clients refuse messages over 4 MiB unless told otherwise.
MERGED_BYTES = 256 * 1024

LOST = "what the call waited for was cancelled"

MessageT_co = TypeVar("MessageT_co", covariant=True)
MessageT = TypeVar("MessageT")


class SlowReader(Overloaded):
    """The client does not read its answer."""

    default_code = "slow_reader"


class LostWait(Exception):
    """Something that a call waited for was cancelled, though nobody has cancelled the call.

    A call that ended with this bare CancelledError would end without a status, and its client would wait for ever.
    """


def is_own_cancellation() -> bool:
    """Asked where a CancelledError came out of an await: somebody has cancelled the running task itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


@dataclass(eq=False, slots=True)
class Held:
    """More of one choice, of one kind; becomes one message.

    Attributes:
        index: the choice.
        is_first: nothing of the choice came before.
        kind: Content, Reasoning or CallStart, whose neighbours can be merged with it; None while it has no text.
        texts: its text, in order.
        calls: new calls and more of their arguments, in order.
        logprobs: log-probabilities of its tokens.
        finish: why the choice ended; None while it runs.
        held_bytes: what it costs while it is held.
        is_taken: the reader has it; nothing more goes in.
    """

    index: int
    is_first: bool
    kind: type[Content | Reasoning | CallStart] | None = None
    texts: list[str] = field(default_factory=list)
    calls: list[chunk_pb2.ToolCallDelta] = field(default_factory=list)
    logprobs: list[common_pb2.TokenLogprob] = field(default_factory=list)
    finish: ChoiceFinish | None = None
    held_bytes: int = 0
    is_taken: bool = False


class PieceBuffer:
    """Holds the pieces of one answer that the client has not taken yet. One reader.

    Within a choice the order is kept; choices may overtake each other.

    Attributes:
        overflow: set when the bound was passed; nothing is held any more.
    """

    def __init__(self, max_held_bytes: int) -> None:
        """Args: max_held_bytes: most bytes to hold while the reader is busy."""
        self._max_held_bytes = max_held_bytes
        self._pieces: deque[Held] = deque()
        self._last: dict[int, Held] = {}
        self._held_bytes = 0
        self._changed = asyncio.Event()
        self._reader_waits = False
        self._is_closed = False
        self._error: SmgError | None = None
        self.overflow: SlowReader | None = None
        self._on_overflow: Callable[[], object] | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def held_bytes(self) -> int:
        """Bytes that are held, about."""
        return self._held_bytes

    @property
    def is_over(self) -> bool:
        """The answer is complete, and all of it was taken."""
        return self._is_closed and not self._pieces and self._error is None

    def call_on_overflow(self, callback: Callable[[], object]) -> None:
        """Tell who has to know, at once, that the bound was passed."""
        self._on_overflow = callback

    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Logprobs = ()) -> None:
        """Add more of a choice. What follows a piece of another kind becomes a message of its own."""
        for piece in pieces:
            if not self._is_closed:
                self._add(index, piece)
        if logprobs and not self._is_closed:
            held = self._open_held(index, None)
            messages = logprobs.form(TokenRows.messages)
            held.logprobs += messages
            self._hold(held, sum(ITEM_BYTES + message.ByteSize() for message in messages))

    def _add(self, index: int, piece: Piece) -> None:
        match piece:
            case Content(text) | CallBroken(_, text):
                self._add_text(index, Content, text)
            case Reasoning(text):
                self._add_text(index, Reasoning, text)
            case CallStart(call, name, call_id):
                delta = chunk_pb2.ToolCallDelta(index=call, id=call_id, type="function", name=name)
                self._add_call(index, delta)
            case CallArguments(call, text):
                self._add_call(index, chunk_pb2.ToolCallDelta(index=call, arguments=text))
            case _:
                pass  # a stream does not tell that a call is complete: its choice's end does

    def _add_text(self, index: int, kind: type[Content | Reasoning], text: str) -> None:
        held = self._open_held(index, kind)
        held.texts.append(text)
        self._hold(held, ITEM_BYTES + len(text.encode("utf-8", "replace")))

    def _add_call(self, index: int, delta: chunk_pb2.ToolCallDelta) -> None:
        held = self._open_held(index, CallStart)
        last = held.calls[-1] if held.calls else None
        if last is not None and last.index == delta.index:
            last.arguments += delta.arguments
        else:
            held.calls.append(delta)
        self._hold(held, ITEM_BYTES + delta.ByteSize())

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """End a choice; with the text before it, if that is still here."""
        if self._is_closed:
            return
        held = self._open_held(index, None)
        held.finish = finish
        self._hold(held, ITEM_BYTES)

    def close(self) -> None:
        """Nothing more comes."""
        self._is_closed = True
        self._changed.set()
        self._let_go_on()

    def fail(self, error: SmgError) -> None:
        """Nothing more comes, because of an error; it is raised after what is held."""
        if not self._is_closed:
            self._error = error
            self.close()

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The reader has not come back for more; go_on is called once when it has, or when nothing is taken any more."""
        if self._reader_waits or self._is_closed:
            return False
        self._waiting.append(go_on)
        return True

    def _let_go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    async def take(self) -> Held | None:
        """The oldest piece; waits for one. None at the end.

        Raises:
            SmgError: what the answer ended with.
        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                return None
            self._changed.clear()
            self._reader_waits = True
            self._let_go_on()
            try:
                await self._changed.wait()
            finally:
                self._reader_waits = False
        piece = self._pieces.popleft()
        piece.is_taken = True
        self._held_bytes -= piece.held_bytes
        return piece

    def _open_held(self, index: int, kind: type[Content | Reasoning | CallStart] | None) -> Held:
        """What takes more of a choice: the last message of it, if it waits and is of that kind, else a new one."""
        last = self._last.get(index)
        if last is not None and not last.is_taken and last.held_bytes < MERGED_BYTES:
            if kind is None or last.kind is None:
                last.kind = last.kind or kind
                return last
            if last.kind is kind:
                return last
        held = self._last[index] = Held(index, is_first=last is None, kind=kind)
        self._pieces.append(held)
        return held

    def _hold(self, held: Held, cost: int) -> None:
        held.held_bytes += cost
        self._held_bytes += cost
        # What comes in one step while the reader waits is not the client's slowness, however much it is.
        if self._held_bytes > self._max_held_bytes and not self._reader_waits:
            self._overflow()
        self._changed.set()

    def _overflow(self) -> None:
        self.overflow = self._error = SlowReader(
            f"the client reads too slowly: more than {self._max_held_bytes} bytes had to be held back for it"
        )
        self._pieces.clear()
        self._last.clear()
        self._held_bytes = 0
        self.close()
        if self._on_overflow is not None:
            self._on_overflow()


class AnswerBuffer(Protocol):
    """Where an answer waits for its reader, as far as deliver() sees it."""

    overflow: SlowReader | None

    def call_on_overflow(self, callback: Callable[[], object]) -> None:
        """Be told when the client is too far behind."""
        ...

    def fail(self, error: SmgError) -> None:
        """Nothing more comes, because of an error."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class MessageSource(Protocol[MessageT_co]):
    """Makes the messages of a streamed answer; see smg/services/stream_sinks.py."""

    @property
    def buffer(self) -> AnswerBuffer:
        """Where the pieces wait."""
        ...

    async def next_message(self) -> MessageT_co | None:
        """The next message; None at the end. Raises what the answer ended with."""
        ...


async def deliver(
    source: MessageSource[MessageT],
    run: Callable[[], Awaitable[None]],
    write: Callable[[MessageT], Awaitable[None]],
    max_stall_s: float,
) -> None:
    """Run an answer and write its messages as the client takes them. Cancelling ends both.

    Args:
        source: the answer's sink.
        run: makes the answer.
        write: sends one message; returns when the client has room for more.
        max_stall_s: time that the client gets to read the rest once the answer is complete.

    Raises:
        SlowReader: the client is too far behind, while the answer runs or after it.
        SmgError: what the answer ended with, after the messages before it.
    """
    try:
        async with asyncio.timeout(None) as bound, asyncio.TaskGroup() as group:
            answer = group.create_task(_answer(source.buffer, run, bound, max_stall_s))
            source.buffer.call_on_overflow(answer.cancel)
            while (message := await source.next_message()) is not None:
                await write(message)
    except TimeoutError:
        raise SlowReader(f"the client did not read the end of its answer within {max_stall_s:g} s") from None
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _answer(
    pieces: AnswerBuffer, run: Callable[[], Awaitable[None]], bound: asyncio.Timeout, max_stall_s: float
) -> None:
    try:
        await run()
    except SmgError as error:
        pieces.fail(error)
    except asyncio.CancelledError as error:
        # Raised here, not only from take(): the writer may wait for the client and never take again.
        if pieces.overflow is not None:
            raise pieces.overflow from None
        if is_own_cancellation():
            raise
        raise LostWait(LOST) from error
    pieces.close()
    bound.reschedule(asyncio.get_running_loop().time() + max_stall_s)
