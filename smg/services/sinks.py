"""Writes whole answers as messages of smg.chat.v1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from smg.errors import InternalError
from smg_proto.chat.v1 import chat_pb2, completion_pb2
from smg_proto.common.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.errors import SmgError
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish, UsageCounter
    from smg.services.streams import Piece
    from smg_proto.chat.v1 import chunk_pb2, message_pb2

SYSTEM_FINGERPRINT = "default"


@dataclass(slots=True)
class Collected:
    """What has come of one choice.

    Attributes:
        texts: pieces of text, in order.
        logprobs: log-probabilities, in order; empty where none were asked for.
        finish: why it ended; None while it runs.
    """

    texts: list[str] = field(default_factory=list)
    logprobs: list[common_pb2.TokenLogprob] = field(default_factory=list)
    finish: ChoiceFinish | None = None


class CollectingSink:
    """Collects an answer."""

    accepts_fragments = False

    def __init__(self) -> None:
        self._head: AnswerHead | None = None
        self._choices: dict[int, Collected] = {}
        self._error: SmgError | None = None
        self._is_complete = False

    def open(self, head: AnswerHead) -> None:
        """Keep the head."""
        self._head = head

    def fragment(self, index: int, fragment: bytes) -> None:
        """Never called: JSON has no place here."""
        raise AssertionError(index, fragment)

    def text(self, index: int, text: str, logprobs: Sequence[common_pb2.TokenLogprob]) -> None:
        """Collect text."""
        collected = self._collected(index)
        collected.texts.append(text)
        collected.logprobs.extend(logprobs)

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Note why a choice ended."""
        self._collected(index).finish = finish

    def close(self) -> None:
        """Note that all is here."""
        self._is_complete = True

    def fail(self, error: SmgError) -> None:
        """Note what went wrong."""
        self._error = error

    def flush(self) -> None:
        """Nothing gathers."""

    def _collected(self, index: int) -> Collected:
        return self._choices.setdefault(index, Collected())

    def _outcome(self) -> tuple[AnswerHead, list[tuple[int, Collected]]]:
        """Head and choices, by index.

        Raises:
            SmgError: the answer failed.
        """
        if self._error is not None:
            raise self._error
        if self._head is None or not self._is_complete:
            raise InternalError("the answer ended before it was complete")
        return self._head, sorted(self._choices.items())


class ProtoChatSink(CollectingSink):
    """Collects a chat answer."""

    def __init__(self, *, logprobs: bool) -> None:
        """Args: logprobs: they were asked for, so an answer without tokens has an empty list of them."""
        super().__init__()
        self._logprobs = logprobs

    def completion(self) -> chat_pb2.ChatCompletion:
        """The whole answer.

        Raises:
            SmgError: the answer failed.
        """
        head, choices = self._outcome()
        answer = chat_pb2.ChatCompletion(
            id=head.id,
            created=head.created,
            model=head.model,
            usage=usage_message(head.usage),
            system_fingerprint=SYSTEM_FINGERPRINT,
        )
        for index, collected in choices:
            choice = answer.choices.add(index=index)
            choice.message.SetInParent()
            text = "".join(collected.texts)
            if text:
                choice.message.content = text
            if self._logprobs:
                choice.logprobs.SetInParent()
            set_end(choice, collected)
        return answer


class ProtoCompletionSink(CollectingSink):
    """Collects text completions."""

    def completion(self) -> completion_pb2.Completion:
        """The whole answer.

        Raises:
            SmgError: the answer failed.
        """
        head, choices = self._outcome()
        answer = completion_pb2.Completion(
            id=head.id,
            created=head.created,
            model=head.model,
            usage=usage_message(head.usage),
            system_fingerprint=SYSTEM_FINGERPRINT,
        )
        for index, collected in choices:
            choice = answer.choices.add(index=index, text="".join(collected.texts))
            set_end(choice, collected)
        return answer


def usage_message(usage: UsageCounter) -> common_pb2.Usage:
    """The counts. Speculative counters appear only when the engine drafts."""
    message = common_pb2.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )
    if usage.draft_tokens:
        message.accepted_prediction_tokens = usage.accepted_tokens
        message.rejected_prediction_tokens = max(0, usage.draft_tokens - usage.accepted_tokens)
    return message


def set_end(
    choice: message_pb2.ChatChoice
    | completion_pb2.CompletionChoice
    | chunk_pb2.ChunkChoice
    | completion_pb2.CompletionChunkChoice,
    source: Collected | Piece,
) -> None:
    """Log-probabilities, and why the choice ended if it did."""
    if source.logprobs:
        choice.logprobs.content.extend(source.logprobs)
    finish = source.finish
    if finish is None:
        return
    choice.finish_reason = finish.reason
    if isinstance(finish.matched_stop, int):
        choice.matched_stop.token_id = finish.matched_stop
    elif finish.matched_stop is not None:
        choice.matched_stop.text = finish.matched_stop
