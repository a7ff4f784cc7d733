"""Turns the token ids of one sequence into one choice of an answer, pushed straight into the sink.

An engine's step calls on_step; nothing is queued and no task is switched until the bytes are on the client's
socket. A token that is complete UTF-8 by itself, and that no stage has to look at, takes one table look-up; everything
else goes through the stages (stages.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.errors import InternalError
from smg.parsers.events import Content
from smg.pipelines.sinks import ChoiceFinish
from smg.pipelines.stages import TextOptions, TextStages
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.errors import SmgError
    from smg.pipelines.answer import Answer
    from smg.pipelines.echo import PromptEcho
    from smg.prompt.tokenizer import Tokenizer

__all__ = ["Choice", "TextOptions"]


class Choice:
    """One sequence on its way to the client. Listens to a worker (GenerateListener).

    Attributes:
        index: number of the choice in the answer.
        prompt_index: number of its prompt in the request.
        sequence: number on the worker.
        is_finished: nothing comes any more.
    """

    def __init__(
        self,
        index: int,
        answer: Answer,
        tokenizer: Tokenizer,
        options: TextOptions,
        *,
        prompt_index: int = 0,
        prompt: PromptEcho | None = None,
    ) -> None:
        """Args: prompt, where the choice goes on from a text instead of answering one."""
        self.index = index
        self.prompt_index = prompt_index
        self.sequence = 0
        self.is_finished = False
        self._answer = answer
        self._sink = answer.sink
        self._usage = answer.usage
        self._options = options
        self._tokenizer = tokenizer
        self._stages = TextStages(tokenizer, options)
        self._name = ""
        # What is still to be shown before the first token.
        self._echo: PromptEcho | None = None
        self._prompt_logprobs: Sequence[work_pb2.TokenLogprobs] = ()
        if prompt is not None:
            self._name = prompt.name
            self._echo = prompt if prompt.is_shown else None
            self._stages.follow(len(prompt.text), prompt.tail)
        self._detokenizer = self._stages.detokenizer
        self._parser = self._stages.parser
        # Ids that may turn out to be the end of the choice; text after them decides whether they are shown.
        self._held_ids = options.stop_token_ids
        # An end token that is not shown still has a log-probability, which must not be shown either.
        if options.logprobs or not options.skip_special_tokens:
            self._held_ids |= tokenizer.eos_ids
        self._held: list[int] = []
        self._held_logprobs: list[work_pb2.TokenLogprobs] = []
        self._end_logprobs: Sequence[work_pb2.TokenLogprobs] = ()
        self._fragments = self._fragment_table(tokenizer)

    def _fragment_table(self, tokenizer: Tokenizer) -> list[bytes | None]:
        """The fast lane's table; empty where every token must take the stages."""
        if (
            self._stages.takes_every_token
            or self._held_ids
            or self._options.logprobs
            or not self._sink.accepts_fragments
        ):
            return []
        openers = self._parser.openers if self._parser is not None else frozenset[str]()
        return tokenizer.fragments_without(openers, skip_special_tokens=self._options.skip_special_tokens)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens that stood inside reasoning."""
        return self._stages.reasoning_tokens

    def on_started(self, started: work_pb2.Started) -> None:
        """Take over the prompt's counts, and its log-probabilities where they are shown."""
        if self._echo is not None:
            self._prompt_logprobs = started.prompt_logprobs
        self._answer.prompt_started(self, started.prompt_tokens, started.cached_tokens)

    def on_step(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
    ) -> None:
        """Write the step's text to the client."""
        if self._echo is not None:
            if not self._show(self._echo):
                return
        elif not self._answer.is_open:
            self._answer.open()
        self._usage.completion_tokens += len(token_ids)
        if finished is None and len(token_ids) == 1 and self._fragments and self._detokenizer.is_clean:
            token = token_ids[0]
            fragment = self._fragments[token] if token < len(self._fragments) else None
            if fragment is not None:
                parser = self._parser
                if parser is None or parser.lane == "content":
                    if fragment:
                        self._sink.fragment(self.index, fragment)
                    return
                if parser.lane == "reasoning":
                    self._stages.reasoning_tokens += 1
                    if fragment:
                        self._sink.reasoning_fragment(self.index, fragment)
                    return
        self._take_stages(token_ids, logprobs, finished)
        self._sink.flush()

    def on_failed(self, error: SmgError) -> None:
        """The sequence is lost: the answer decides between another try and an error."""
        self.is_finished = True
        # What one of several prompts did wrong is told with its name; a lost worker is no prompt's fault.
        is_own = bool(self._name) and not self._answer.can_retry(error)
        self._answer.choice_failed(error.about(self._name) if is_own else error)

    def _show(self, echo: PromptEcho) -> bool:
        """Write the prompt before the first token. False if that has failed, and the answer with it."""
        try:
            echo.check(self._prompt_logprobs)
        except InternalError as error:
            self._answer.choice_failed(error)
            return False
        if not self._answer.is_open:
            self._answer.open()
        for text, entries in echo.parts(self._tokenizer, self._prompt_logprobs):
            self._sink.pieces(self.index, [Content(text)] if text else [], entries)
        self._echo, self._prompt_logprobs = None, ()
        return True

    def _take_stages(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
    ) -> None:
        shown, shown_logprobs, matched = self._hold_back(token_ids, logprobs, finished)
        stages = self._stages
        pieces, entries = stages.feed(shown, shown_logprobs if self._options.logprobs else ())
        if finished is not None and stages.matched is None:
            rest = stages.finish(is_cut=finished.reason != work_pb2.FINISH_REASON_STOP)
            pieces += rest.pieces
            entries += rest.logprobs
            if matched is not None:
                entries += stages.end_entry(matched, self._end_logprobs)
        if pieces or entries:
            self._sink.pieces(self.index, pieces, entries)
        if stages.matched is not None:
            self._end(ChoiceFinish("stop", stages.matched), finished)
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
                if self._options.end_logprobs:
                    self._end_logprobs = entries[len(ids) - 1 :]
                return ids[:-1], entries[: len(ids) - 1], matched
            return ids, entries, matched
        if ids and ids[-1] in self._held_ids:
            self._held = [ids[-1]]
            self._held_logprobs = list(entries[len(ids) - 1 :])
            return ids[:-1], entries[: len(ids) - 1], None
        return ids, entries, None

    def _end(self, finish: ChoiceFinish, finished: work_pb2.Finished | None) -> None:
        self.is_finished = True
        if self._stages.has_calls and finish.reason == "stop":
            finish = ChoiceFinish("tool_calls", finish.matched_stop)
        self._sink.finish(self.index, finish)
        self._answer.choice_finished(self, finished)


def _finish_of(finished: work_pb2.Finished, matched: int | None) -> ChoiceFinish:
    """OpenAI's finish_reason: an abort that nobody here asked for, and vendors' own words, read as "stop"."""
    if finished.reason == work_pb2.FINISH_REASON_LENGTH:
        return ChoiceFinish("length")
    if matched is not None:
        return ChoiceFinish("stop", matched)
    return ChoiceFinish("stop", finished.matched_stop or None)
