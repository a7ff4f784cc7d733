"""Writes text completions as OpenAI JSON: server-sent events, or one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.openai.chunks import usage_json
from gateway.openai.sinks import Collected, JsonSink, SseSink, choice_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.pipelines.sinks import AnswerHead, ChoiceFinish
    from smg_proto.common.v1 import common_pb2


class SseCompletionSink(SseSink):
    """Streams text completions."""

    object_name = "text_completion"
    after_text = b'","finish_reason":null}]}\n\n'

    def _first(self, index: int) -> bytes:
        return self._start_of(index) + b'"text":"'

    def text(self, index: int, text: str, logprobs: Sequence[common_pb2.TokenLogprob]) -> None:  # noqa: ARG002 - refused by the pipeline
        """Gather a chunk with text."""
        self._gather({"index": index, "text": text, "finish_reason": None})

    def finish(self, index: int, finish: ChoiceFinish) -> None:
        """Gather the chunk that ends a choice."""
        self._gather({"index": index, "text": "", "finish_reason": finish.reason})


class JsonCompletionSink(JsonSink):
    """Collects text completions and writes them as one object."""

    def _body(self, head: AnswerHead, choices: list[tuple[int, Collected]]) -> dict[str, Any]:
        return {
            "id": head.id,
            "object": "text_completion",
            "created": head.created,
            "model": head.model,
            "choices": [
                {"text": "".join(collected.texts), "index": index, **choice_end(collected.finish)}
                for index, collected in choices
            ],
            "usage": usage_json(head.usage),
            "system_fingerprint": "default",
        }
