"""Writes whole answers as messages of smg.chat.v1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.pipelines.collected import CollectingSink
from smg_proto.chat.v1 import chat_pb2, completion_pb2
from smg_proto.common.v1 import common_pb2

if TYPE_CHECKING:
    from smg.pipelines.collected import CollectedChoice
    from smg.pipelines.sinks import UsageCounter
    from smg.services.streams import Held
    from smg_proto.chat.v1 import chunk_pb2, message_pb2

SYSTEM_FINGERPRINT = "default"


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
        head, choices = self.outcome()
        answer = chat_pb2.ChatCompletion(
            id=head.id,
            created=head.created,
            model=head.model,
            usage=usage_message(head.usage),
            system_fingerprint=SYSTEM_FINGERPRINT,
        )
        for index, collected in choices:
            choice = answer.choices.add(index=index)
            _set_message(choice.message, collected)
            if self._logprobs:
                choice.logprobs.SetInParent()
            set_end(choice, collected)
        return answer


class ProtoCompletionSink(CollectingSink):
    """Collects text completions."""

    def __init__(self, *, logprobs: bool) -> None:
        """Args: logprobs: they were asked for, so a continuation without tokens has an empty list of them."""
        super().__init__()
        self._logprobs = logprobs

    def completion(self) -> completion_pb2.Completion:
        """The whole answer.

        Raises:
            SmgError: the answer failed.
        """
        head, choices = self.outcome()
        answer = completion_pb2.Completion(
            id=head.id,
            created=head.created,
            model=head.model,
            usage=usage_message(head.usage),
            system_fingerprint=SYSTEM_FINGERPRINT,
        )
        for index, collected in choices:
            choice = answer.choices.add(index=index, text=collected.answer().content)
            if self._logprobs:
                choice.logprobs.SetInParent()
            set_end(choice, collected)
        return answer


def _set_message(message: message_pb2.AssistantMessage, collected: CollectedChoice) -> None:
    message.SetInParent()
    answer = collected.answer()
    if answer.content is not None:
        message.content = answer.content
    if answer.reasoning is not None:
        message.reasoning_content = answer.reasoning
    for call in answer.calls:
        message.tool_calls.add(id=call.id, type="function", name=call.name, arguments=call.arguments)


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
    source: CollectedChoice | Held,
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
