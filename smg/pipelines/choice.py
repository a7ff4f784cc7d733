"""Turns the token ids of one sequence into one choice of an answer, pushed straight into the sink.

An engine's step calls on_step; nothing is queued and no task is switched until the bytes are on the client's
socket. A token that is complete UTF-8 by itself, and that no stage has to look at, takes one table look-up; everything
else goes through the stages (stages.py). What would take long is written a little at a time (backlog.py).
"""

from __future__ import annotations

import logging
from array import array
from itertools import chain
from typing import TYPE_CHECKING

from smg.errors import InternalError
from smg.parsers.events import Content
from smg.pipelines.backlog import Backlog
from smg.pipelines.logprobs import TokenRows, row_cost
from smg.pipelines.sinks import ChoiceFinish
from smg.pipelines.stages import TextOptions, TextStages
from smg.pipelines.turns import LEAVES
from smg_proto.engine.v1 import work_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from smg.errors import SmgError
    from smg.pipelines.answer import Answer
    from smg.pipelines.echo import SharedEcho
    from smg.prompt.tokenizer import Tokenizer

__all__ = ["Choice", "TextOptions"]

# Steps of so many tokens are written as they come, whatever is asked for.
SHORT_STEP_TOKENS = 16
# Longer ones in portions of about a millisecond: so many tokens, or less where each has log-probabilities.
PORTION_TOKENS = 1024
# So many characters take about a microsecond.
CHARS_COST = 256

_log = logging.getLogger(__name__)


class Choice:
    """One sequence on its way to the client. Listens to a worker (GenerateListener).

    Attributes:
        index: number of the choice in the answer.
        prompt_index: number of its prompt in the request.
        sequence: number on the worker.
        is_finished: nothing comes any more.
        is_complete: its engine has told its end, which may still have to be written.
        has_ended: its end is written.
        is_abandoned: nothing is to be written any more.
        is_resumed: it goes on where an engine that was lost has stopped.
    """

    def __init__(
        self,
        index: int,
        answer: Answer,
        tokenizer: Tokenizer,
        options: TextOptions,
        *,
        prompt_index: int = 0,
        prompt: SharedEcho | None = None,
    ) -> None:
        """Args: prompt, where the choice goes on from a text instead of answering one."""
        self.index = index
        self.prompt_index = prompt_index
        self.sequence = 0
        self.is_finished = False
        self.is_complete = self.has_ended = self.is_abandoned = False
        self.is_resumed = False
        self._received = array("I")
        self._answer = answer
        self._sink = answer.sink
        self._usage = answer.usage
        self._options = options
        self._tokenizer = tokenizer
        self._stages = TextStages(tokenizer, options)
        self._name = ""
        # What is still to be shown before the first token.
        self._echo: SharedEcho | None = None
        self._tells_echo = False
        if prompt is not None:
            self._name = prompt.prompt.name
            self._echo = prompt if prompt.prompt.is_shown else None
            self._tells_echo = prompt.claim()
            self._stages.follow(len(prompt.prompt.text), prompt.prompt.tail)
        # What takes long, and what has come after it; None where nothing is.
        self._backlog: Backlog | None = None
        # Something is still to be written before the next step.
        self._is_held = self._echo is not None
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
        skips = self._options.skip_special_tokens
        if self._parser is None:
            return tokenizer.fragments_without(frozenset(), skip_special_tokens=skips)
        return tokenizer.fragments_without(
            self._parser.openers, skip_special_tokens=skips, shown=tokenizer.specials_in(self._parser.markup)
        )

    @property
    def reasoning_tokens(self) -> int:
        """Tokens that stood inside reasoning."""
        return self._stages.reasoning_tokens

    def on_started(self, started: work_pb2.Started) -> None:
        """Take over the prompt's counts, and its log-probabilities where they are shown."""
        if self.is_resumed:
            return
        if self._echo is not None and self._tells_echo:
            self._take_echo(self._echo, started.prompt_logprobs)
        self._answer.prompt_started(self, started.prompt_tokens, started.cached_tokens)

    def on_step(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
    ) -> None:
        """Write the step's text to the client."""
        self._received.extend(token_ids)
        self._usage.completion_tokens += len(token_ids)
        if finished is not None:
            self.is_complete = True
        if self._is_held:
            self._write_later(token_ids, logprobs, finished)
            return
        if not self._answer.is_open:
            self._answer.open()
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
        if len(token_ids) > SHORT_STEP_TOKENS:
            self._write_later(token_ids, logprobs, finished)
            return
        self._take_stages(token_ids, logprobs, finished, finished)
        self._sink.flush()

    def resume(self, request: work_pb2.Generate) -> None:
        """Make a request that goes on where this sequence has stopped. The stages stay as they are.

        What was received and is not written yet is written first.
        """
        self.is_finished = False
        self.sequence = 0
        if self._received:
            self.is_resumed = True
            request.output_ids = self._received.tobytes()
            if request.logprobs.HasField("prompt_start"):
                request.logprobs.ClearField("prompt_start")

    def on_failed(self, error: SmgError) -> None:
        """The sequence is lost: the answer decides between another try and an error."""
        self.is_finished = True
        # What one of several prompts did wrong is told with its name; a lost worker is no prompt's fault.
        is_own = bool(self._name) and not self._answer.can_retry(error)
        self._answer.choice_failed(error.about(self._name) if is_own else error)

    def client_is_behind(self, go_on: Callable[[], None]) -> bool:
        """For the backlog: nothing should be written now."""
        return self._sink.is_behind(go_on)

    def caught_up(self) -> None:
        """For the backlog: nothing is left of it."""
        self._backlog = None
        self._is_held = False

    def broke(self, error: Exception) -> None:
        """For the backlog: what is to be written cannot be."""
        _log.error("answer %s: a choice could not be written", self._answer.id, exc_info=error)
        self._answer.choice_failed(InternalError(f"the answer could not be written: {error}"))

    def _write_later(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
    ) -> None:
        """Write a step after the prompt and the steps before it; at once where that takes no time."""
        work = self._portions(token_ids, logprobs, finished)
        echo = self._echo
        if self._backlog is None:
            self._backlog = Backlog(self._answer.turns)
            self._is_held = True
            if echo is not None:
                if self._tells_echo and not self._take_echo(echo, ()):
                    return
                work = chain(self._echo_portions(echo, self._backlog.go_on), work)
        self._backlog.add(self, work)

    def _take_echo(self, echo: SharedEcho, rows: Sequence[work_pb2.TokenLogprobs]) -> bool:
        """Hand over the prompt's log-probabilities. False if they are not all there, and the answer has failed."""
        if not echo.is_told:
            try:
                echo.tell(rows)
            except InternalError as error:
                self._answer.choice_failed(error)
                return False
        return True

    def _echo_portions(self, echo: SharedEcho, go_on: Callable[[], None]) -> Iterator[int]:
        while not echo.is_told:
            echo.when_told(go_on)
            yield LEAVES
        if not self._answer.is_open:
            self._answer.open()
        for text, rows in echo.parts():
            self._sink.pieces(self.index, [Content(text)] if text else [], rows)
            self._sink.flush()
            yield len(text) // CHARS_COST + (len(rows) * row_cost(rows.entries[-1].row) if rows else 0)
        self._echo = None

    def _portions(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
    ) -> Iterator[int]:
        """Write a step, in portions that each take about a millisecond."""
        if not self._answer.is_open:
            self._answer.open()
        cost = row_cost(logprobs[-1]) if logprobs and self._options.logprobs else 1
        size = max(SHORT_STEP_TOKENS, PORTION_TOKENS // cost)
        for start in range(0, len(token_ids) or 1, size):
            ids = token_ids[start : start + size]
            is_last = start + size >= len(token_ids)
            self._take_stages(ids, logprobs[start : start + size], finished if is_last else None, finished)
            self._sink.flush()
            yield cost * len(ids)

    def _take_stages(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[work_pb2.TokenLogprobs],
        finished: work_pb2.Finished | None,
        ending: work_pb2.Finished | None,
    ) -> None:
        """Args: ending: how the engine ended the choice, though finished comes only with the last of its tokens."""
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
            self._sink.pieces(self.index, pieces, TokenRows(self._tokenizer, entries) if entries else ())
        if stages.matched is not None:
            self._end(ChoiceFinish("stop", stages.matched), ending)
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
        self.has_ended = self.is_abandoned = True
        self._sink.finish(self.index, finish)
        self._answer.choice_finished(self, finished)


def _finish_of(finished: work_pb2.Finished, matched: int | None) -> ChoiceFinish:
    """OpenAI's finish_reason: an abort that nobody here asked for, and vendors' own words, read as "stop"."""
    if finished.reason == work_pb2.FINISH_REASON_LENGTH:
        return ChoiceFinish("length")
    if matched is not None:
        return ChoiceFinish("stop", matched)
    return ChoiceFinish("stop", finished.matched_stop or None)
