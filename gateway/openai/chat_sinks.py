"""Writes chat answers as OpenAI JSON: server-sent events, or one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.openai.chunks import chat_logprobs, usage_json
from gateway.openai.sinks import JsonSink, SseSink, choice_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.openai.sinks import Collected, MakeHeaders
    from gateway.reply import Reply
    from smg.pipelines.sinks import AnswerHead, ChoiceFinish
    from smg_proto.common.v1 import common_pb2


class SseChatSink(SseSink):
    """Streams a chat answer. A choice opens with a chunk that names the role."""

    object_name = "chat.completion.chunk"
    after_text = b'"},"logprobs":null,"finish_reason":null}]}\n\n'

    def _first(self, index: int) -> bytes:
        self._choice(index, {"role": "assistant", "content": "", "refusal": None})
        return self._start_of(index) + b'"delta":{"content":"'

    def text(self, index: int, text: str, logprobs: Sequence[common_pb2.TokenLogprob]) -> None:
        """Gather a chunk with text."""
        self._opened(index)
        self._choice(index, {"content": text}, logprobs=chat_logprobs(logprobs))

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Gather the chunk that ends a choice."""
        self._opened(index)
        choice: dict[str, Any] = {
            "index": index,
            "delta": {},
            "logprobs": None,
            "finish_reason": finish.reason,
        }
        # A stop sequence is worth telling; that a model ended with its own end token is not.
        if isinstance(finish.matched_stop, str):
            choice["matched_stop"] = finish.matched_stop
        self._gather(choice)

    def _choice(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
    ) -> None:
        self._gather({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None})


class JsonChatSink(JsonSink):
    """Collects a chat answer and writes it as one object."""

    def __init__(self, reply: Reply, headers: MakeHeaders, *, logprobs: bool) -> None:
        """Args: logprobs: they were asked for, so an answer without tokens has an empty list of them."""
        super().__init__(reply, headers)
        self._logprobs = logprobs

    def _body(self, head: AnswerHead, choices: list[tuple[int, Collected]]) -> dict[str, Any]:
        return {
            "id": head.id,
            "object": "chat.completion",
            "created": head.created,
            "model": head.model,
            "choices": [self._choice(index, collected) for index, collected in choices],
            "usage": usage_json(head.usage),
            "system_fingerprint": "default",
            "service_tier": "default",
        }

    def _choice(self, index: int, collected: Collected) -> dict[str, Any]:
        logprobs: dict[str, Any] | None = chat_logprobs(collected.logprobs)
        if self._logprobs and logprobs is None:
            logprobs = {"content": [], "refusal": None}
        return {
            "index": index,
            "message": {
                "role": "assistant",
                "content": "".join(collected.texts) or None,
                "refusal": None,
                "annotations": [],
                "reasoning_content": None,
            },
            "logprobs": logprobs,
            **choice_end(collected.finish),
        }
