"""Turns the token ids of one sequence into the text of one choice, pushed straight into the sink.

An engine's step calls on_step; nothing is queued and no task is switched until the bytes are on the client's
socket. A token that is complete UTF-8 by itself, in a choice without stop strings or log-probabilities, takes one
table look-up; everything else goes through the stages: detokenizer, then stop strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.pipelines.logprobs import token_logprobs
from smg.pipelines.sinks import ChoiceFinish
from smg.prompt.detokenizer import Detokenizer
from smg.prompt.stop import StopMatcher
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.errors import SmgError
    from smg.pipelines.answer import Answer
    from smg.prompt.tokenizer import Tokenizer
    from smg_proto.common.v1 import common_pb2


class TextOptions(NamedTuple):
    """How the tokens of a request become text.

    Attributes:
        stop: texts that end a choice.
        stop_token_ids: ids, beside the model's own, that end a choice.
        keep_stop: leave what ended the choice in the text.
        skip_special_tokens: leave special tokens out of the text.
        logprobs: log-probabilities were asked for.
    """

    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    keep_stop: bool = False
    skip_special_tokens: bool = True
    logprobs: bool = False


class Choice:
    """One sequence on its way to the client. Listens to a worker (GenerateListener)."""

    def __init__(
        self, index: int, answer: Answer, tokenizer: Tokenizer, options: TextOptions, *, prompt_index: int = 0
    ) -> None:
        self.index = index
        self.prompt_index = prompt_index
        self.sequence = 0
        self.is_finished = False
        self._answer = answer
        self._sink = answer.sink
        self._usage = answer.usage
        self._tokenizer = tokenizer
        self._options = options
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=options.skip_special_tokens)
        self._stop = StopMatcher(options.stop, keep=options.keep_stop) if options.stop else None
        # Ids that may turn out to be the end of the choice; text after them decides whether they are shown.
        self._held_ids = options.stop_token_ids
        # An end token that is not shown still has a log-probability, which must not be shown either.
        if options.logprobs or not options.skip_special_tokens:
            self._held_ids |= tokenizer.eos_ids
        self._held: list[int] = []
        self._held_logprobs: list[work_pb2.TokenLogprobs] = []
        self._fragments = self._fragment_table()

    def _fragment_table(self) -> list[bytes | None]:
        """The fast lane's table; empty where every token must take the stages."""
        if (
            self._stop is not None
            or self._held_ids
            or self._options.logprobs
            or not self._sink.accepts_fragments
        ):
            return []
        if self._options.skip_special_tokens:
            return self._tokenizer.fragments
        return self._tokenizer.fragments_with_specials

    def on_started(self, started: work_pb2.Started) -> None:
        """Take over the prompt's counts."""
        self._answer.prompt_started(self, started.prompt_tokens, started.cached_tokens)

    def on_step(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
    ) -> None:
        """Write the step's text to the client."""
        if not self._answer.is_open:
            self._answer.open()
        self._usage.completion_tokens += len(token_ids)
        if finished is None and len(token_ids) == 1 and self._fragments and self._detokenizer.is_clean:
            token = token_ids[0]
            fragment = self._fragments[token] if token < len(self._fragments) else None
            if fragment is not None:
                if fragment:
                    self._sink.fragment(self.index, fragment)
                return
        self._take_stages(token_ids, logprobs, finished)
        self._sink.flush()

    def on_failed(self, error: SmgError) -> None:
        """The sequence is lost: the answer decides between another try and an error."""
        self.is_finished = True
        self._answer.choice_failed(error)

    def _take_stages(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
    ) -> None:
        shown, shown_logprobs, matched = self._hold_back(token_ids, logprobs, finished)
        text = self._detokenizer.feed(shown)
        if finished is not None:
            text += self._detokenizer.finish()
        matched_text: str | None = None
        if self._stop is not None:
            text = self._stop.feed(text)
            if finished is not None and self._stop.matched is None:
                text += self._stop.finish()
            matched_text = self._stop.matched
        entries = self._logprob_entries(shown, shown_logprobs)
        if text or entries:
            self._sink.text(self.index, text, entries)
        if matched_text is not None:
            self._end(ChoiceFinish("stop", matched_text), finished)
        elif finished is not None:
            self._end(_finish_of(finished, matched), finished)

    def _hold_back(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
    ) -> tuple[Sequence[int], Sequence[work_pb2.TokenLogprobs], int | None]:
        """Keep back a last token that may be the stop; give it out as soon as more text follows it.

        Returns: ids to show, their log-probabilities, and the id that ended the choice if one did.
        """
        ids, entries = token_ids, logprobs
        if self._held:
            ids = [*self._held, *token_ids]
            entries = [*self._held_logprobs, *logprobs]
            self._held, self._held_logprobs = [], []
        if finished is not None:
            if not finished.HasField("matched_token_id"):
                return ids, entries, None
            matched = finished.matched_token_id
            if ids and ids[-1] == matched and not self._options.keep_stop:
                return ids[:-1], entries[: len(ids) - 1], matched
            return ids, entries, matched
        if ids and ids[-1] in self._held_ids:
            self._held = [ids[-1]]
            self._held_logprobs = list(entries[len(ids) - 1 :])
            return ids[:-1], entries[: len(ids) - 1], None
        return ids, entries, None

    def _logprob_entries(
        self, ids: Sequence[int], logprobs: Sequence[work_pb2.TokenLogprobs]
    ) -> Sequence[common_pb2.TokenLogprob]:
        if not self._options.logprobs or not logprobs:
            return ()
        return token_logprobs(self._tokenizer, ids, logprobs)

    def _end(self, finish: ChoiceFinish, finished: work_pb2.Finished | None) -> None:
        self.is_finished = True
        self._sink.finish(self.index, finish)
        self._answer.choice_finished(self, finished)


def _finish_of(finished: work_pb2.Finished, matched: int | None) -> ChoiceFinish:
    """OpenAI's finish_reason: an abort that nobody here asked for, and vendors' own words, read as "stop"."""
    if finished.reason == work_pb2.FINISH_REASON_LENGTH:
        return ChoiceFinish("length")
    if matched is not None:
        return ChoiceFinish("stop", matched)
    return ChoiceFinish("stop", finished.matched_stop or None)
