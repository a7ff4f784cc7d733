"""Writes whole answers as messages of smg.chat.v1."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, TypeVar

from smg.pipelines.collected import CollectingSink
from smg.pipelines.logprobs import TokenRows
from smg_proto.chat.v1 import chat_pb2, completion_pb2, message_pb2
from smg_proto.common.v1 import common_pb2

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer as RepeatedComposite

    from smg.parsers.assemble import Assembled
    from smg.pipelines.collected import CollectedChoice
    from smg.pipelines.sinks import ChoiceFinish, UsageCounter
    from smg_proto.chat.v1 import chunk_pb2

SYSTEM_FINGERPRINT = "default"
# Of a choice whose place is not known yet: more than any place.
NO_INDEX = (1 << 32) - 1

ChoiceT = TypeVar("ChoiceT", message_pb2.ChatChoice, completion_pb2.CompletionChoice)


class ProtoSink(CollectingSink[ChoiceT], abc.ABC):
    """Collects an answer. Log-probabilities go into the answer's choices as they come: at the end they are too many."""

    def __init__(self, choices: RepeatedComposite[ChoiceT], *, logprobs: bool) -> None:
        """Args: logprobs: they were asked for, so an answer without tokens has an empty list of them."""
        super().__init__()
        self._all_choices = choices
        self._logprobs = logprobs

    def _begin(self) -> ChoiceT:
        return self._all_choices.add(index=NO_INDEX)

    def _add(self, kept: ChoiceT, rows: TokenRows) -> None:
        kept.logprobs.content.extend(rows.form(TokenRows.messages))

    def _complete(self, answer: chat_pb2.ChatCompletion | completion_pb2.Completion) -> None:
        """Fill in what all answers have.

        Raises:
            SmgError: the answer failed.
        """
        head, choices = self.outcome()
        answer.id = head.id
        answer.created = head.created
        answer.model = head.model
        answer.usage.CopyFrom(usage_message(head.usage))
        answer.system_fingerprint = SYSTEM_FINGERPRINT
        for index, collected in choices:
            choice = collected.kept
            choice.index = index
            self._set_text(choice, collected)
            if self._logprobs:
                choice.logprobs.SetInParent()
            set_end(choice, collected.finish)
        # Those that are not kept come last.
        self._all_choices.sort(key=_index_of)
        del self._all_choices[len(choices) :]

    @abc.abstractmethod
    def _set_text(self, choice: ChoiceT, collected: CollectedChoice[ChoiceT]) -> None: ...


class ProtoChatSink(ProtoSink["message_pb2.ChatChoice"]):
    """Collects a chat answer."""

    def __init__(self, *, logprobs: bool) -> None:
        """Args: logprobs: see ProtoSink."""
        self._response = chat_pb2.CreateChatCompletionResponse()
        super().__init__(self._response.completion.choices, logprobs=logprobs)

    def response(self) -> chat_pb2.CreateChatCompletionResponse:
        """The whole answer.

        Raises:
            SmgError: the answer failed.
        """
        self._complete(self._response.completion)
        return self._response

    def _set_text(
        self, choice: message_pb2.ChatChoice, collected: CollectedChoice[message_pb2.ChatChoice]
    ) -> None:
        _set_message(choice.message, collected.answer())


class ProtoCompletionSink(ProtoSink["completion_pb2.CompletionChoice"]):
    """Collects text completions."""

    def __init__(self, *, logprobs: bool) -> None:
        """Args: logprobs: see ProtoSink."""
        self._response = chat_pb2.CreateCompletionResponse()
        super().__init__(self._response.completion.choices, logprobs=logprobs)

    def response(self) -> chat_pb2.CreateCompletionResponse:
        """The whole answer.

        Raises:
            SmgError: the answer failed.
        """
        self._complete(self._response.completion)
        return self._response

    def _set_text(
        self,
        choice: completion_pb2.CompletionChoice,
        collected: CollectedChoice[completion_pb2.CompletionChoice],
    ) -> None:
        choice.text = collected.answer().content or ""


def _index_of(choice: message_pb2.ChatChoice | completion_pb2.CompletionChoice) -> int:
    return choice.index


def _set_message(message: message_pb2.AssistantMessage, answer: Assembled) -> None:
    message.SetInParent()
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
    finish: ChoiceFinish | None,
) -> None:
    """Why the choice ended, if it did."""
    if finish is None:
        return
    choice.finish_reason = finish.reason
    if isinstance(finish.matched_stop, int):
        choice.matched_stop.token_id = finish.matched_stop
    elif finish.matched_stop is not None:
        choice.matched_stop.text = finish.matched_stop
