"""Writes streamed answers as messages of smg.chat.v1, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from smg.parsers.events import Reasoning
from smg.services.sinks import SYSTEM_FINGERPRINT, set_end, usage_message
from smg_proto.chat.v1 import chat_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smg.errors import SmgError
    from smg.parsers.events import Piece
    from smg.pipelines.logprobs import Logprobs
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish
    from smg.profiles import StreamUsage
    from smg.services.streams import Held, PieceBuffer

ROLE = "assistant"

ResponseT = TypeVar("ResponseT", chat_pb2.StreamChatCompletionResponse, chat_pb2.StreamCompletionResponse)


@dataclass(frozen=True, slots=True)
class StreamForm:
    """What a stream carries beside the text.

    Attributes:
        usage: send the counts in a last chunk without choices.
        running_usage: send the counts so far in every chunk.
        finish_usage: send the counts in the chunk that ends the last choice, and in no chunk of their own.
    """

    usage: bool = False
    running_usage: bool = False
    finish_usage: bool = False

    @classmethod
    def of(cls, usage: StreamUsage) -> StreamForm:
        """What the client asked for, under the profile of its model."""
        return cls(usage.is_told and not usage.with_finish, usage.is_running, usage.with_finish)


class ChunkSink(Generic[ResponseT]):
    """Hands an answer to the call that streams it, piece by piece, as messages of the call's response type."""

    accepts_fragments = False
    _response: type[ResponseT]

    def __init__(self, buffer: PieceBuffer, form: StreamForm) -> None:
        self.buffer = buffer
        self._form = form
        self._owes_usage = form.usage
        self._head: AnswerHead | None = None

    def open(self, head: AnswerHead) -> None:
        """Keep what all chunks share."""
        self._head = head

    def fragment(self, index: int, fragment: bytes) -> None:
        """Never called: JSON has no place here."""
        raise AssertionError(index, fragment)

    def reasoning_fragment(self, index: int, fragment: bytes) -> None:
        """Never called either."""
        raise AssertionError(index, fragment)

    def pieces(self, index: int, pieces: Sequence[Piece], logprobs: Logprobs) -> None:
        """Put more of a choice where the call takes it."""
        self.buffer.pieces(index, pieces, logprobs)

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Put the end of a choice where the call takes it."""
        self.buffer.finish(index, finish)

    def close(self) -> None:
        """Let the call end."""
        self.buffer.close()

    def fail(self, error: SmgError) -> None:
        """Let the call end with the error."""
        self.buffer.fail(error)

    def flush(self) -> None:
        """Nothing gathers: the call takes what is there when it comes to it."""

    def is_behind(self, go_on: Callable[[], None]) -> bool:
        """The client has not read what is held for it."""
        return self.buffer.is_behind(go_on)

    def keep(self, indexes: Sequence[int]) -> None:
        """Never called: what has been streamed stays."""
        raise AssertionError(indexes)

    async def next_message(self) -> ResponseT | None:
        """The next chunk; waits for one. None at the end.

        Raises:
            SmgError: what the answer ended with.
        """
        held = await self.buffer.take()
        head = self._head
        if head is None:
            return None
        if held is not None:
            return self._message(head, held)
        if self._owes_usage:
            self._owes_usage = False
            return self._message(head, None)
        return None

    def _message(self, head: AnswerHead, held: Held | None) -> ResponseT:
        """A chunk with more of a choice, or the one with the usage."""
        response = self._response()
        chunk = response.chunk
        chunk.id = head.id
        chunk.created = head.created
        chunk.model = head.model
        chunk.system_fingerprint = SYSTEM_FINGERPRINT
        if held is not None:
            self._fill(response, held)
        if held is None or self._form.running_usage or (self._form.finish_usage and self.buffer.is_over):
            chunk.usage.CopyFrom(usage_message(head.usage))
        return response

    def _fill(self, response: ResponseT, held: Held) -> None:
        raise NotImplementedError


class ProtoChatStreamSink(ChunkSink[chat_pb2.StreamChatCompletionResponse]):
    """Streams a chat answer. The first piece of a choice names the role."""

    _response = chat_pb2.StreamChatCompletionResponse

    def _fill(self, response: chat_pb2.StreamChatCompletionResponse, held: Held) -> None:
        choice = response.chunk.choices.add(index=held.index)
        choice.delta.SetInParent()
        if held.is_first:
            choice.delta.role = ROLE
        if held.texts:
            text = "".join(held.texts)
            if held.kind is Reasoning:
                choice.delta.reasoning_content = text
            else:
                choice.delta.content = text
        choice.delta.tool_calls.extend(held.calls)
        if held.logprobs:
            choice.logprobs.content.extend(held.logprobs)
        set_end(choice, held.finish)


class ProtoCompletionStreamSink(ChunkSink[chat_pb2.StreamCompletionResponse]):
    """Streams text completions."""

    _response = chat_pb2.StreamCompletionResponse

    def _fill(self, response: chat_pb2.StreamCompletionResponse, held: Held) -> None:
        choice = response.chunk.choices.add(index=held.index, text="".join(held.texts))
        if held.logprobs:
            choice.logprobs.content.extend(held.logprobs)
        set_end(choice, held.finish)
