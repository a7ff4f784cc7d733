"""Turns the token ids of one choice into pieces of its answer: detokenizer, stop strings, reasoning and calls.

No I/O: feed ids, take pieces. A log-probability comes out with the text of its token: held back while the text is, and
never for a token that a stop string has cut off.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from smg.parsers.events import CallEnd, CallStart, Content
from smg.parsers.tools import CALL_ID_CHARS
from smg.pipelines.logprobs import token_entries
from smg.pipelines.output import PLAIN
from smg.prompt.detokenizer import Detokenizer
from smg.prompt.stop import StopMatcher
from smg.types.context import new_call_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smg.parsers.events import Piece
    from smg.pipelines.logprobs import TokenEntry
    from smg.pipelines.output import OutputForm
    from smg.prompt.tokenizer import Tokenizer
    from smg_proto.engine.v1 import work_pb2


_NOTHING_SHOWN = frozenset[int]()


class TextOptions(NamedTuple):
    """How the tokens of a request become text.

    Attributes:
        stop: texts that end a choice.
        stop_token_ids: ids, beside the model's own, that end a choice.
        keep_stop: leave what ended the choice in the text.
        skip_special_tokens: leave special tokens out of the text.
        logprobs: log-probabilities were asked for.
        form: what the text is made of.
        end_logprobs: the token that ended a choice has a log-probability as well, though no text.
    """

    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    keep_stop: bool = False
    skip_special_tokens: bool = True
    logprobs: bool = False
    form: OutputForm = PLAIN
    end_logprobs: bool = False


class Output(NamedTuple):
    """What some tokens have brought.

    Attributes:
        pieces: of the answer.
        logprobs: of the tokens whose text is out.
    """

    pieces: list[Piece]
    logprobs: list[TokenEntry]


class TextStages:
    """State of one choice.

    Attributes:
        detokenizer: the first stage.
        parser: the last one; None where text is content.
        matched: the stop string that was found; None so far. After it nothing comes.
        reasoning_tokens: tokens that stood inside reasoning.
        has_calls: a call is complete.
    """

    __slots__ = (
        "_fed_chars",
        "_held_logprobs",
        "_id_chars",
        "_is_counting",
        "_offset",
        "_released_chars",
        "_stop",
        "detokenizer",
        "has_calls",
        "matched",
        "parser",
        "reasoning_tokens",
    )

    def __init__(self, tokenizer: Tokenizer, options: TextOptions) -> None:
        self._stop = StopMatcher(options.stop, keep=options.keep_stop) if options.stop else None
        self.parser = None if options.form is PLAIN else options.form.parser()
        shown = tokenizer.specials_in(self.parser.markup) if self.parser is not None else _NOTHING_SHOWN
        self.detokenizer = Detokenizer(
            tokenizer, skip_special_tokens=options.skip_special_tokens, shown=shown
        )
        self._id_chars = CALL_ID_CHARS.get(options.form.tools or "")
        self._is_counting = options.form.reasoning is not None
        self._offset: int | None = None
        self._fed_chars = 0
        self._released_chars = 0
        self._held_logprobs: deque[tuple[int, TokenEntry]] = deque()
        self.matched: str | None = None
        self.reasoning_tokens = 0
        self.has_calls = False

    @property
    def takes_every_token(self) -> bool:
        """No token may pass by these stages, whatever its text is."""
        return self._stop is not None

    def follow(self, shown_chars: int, tail: Sequence[int]) -> None:
        """Go on from a prompt, not from the start of a text; log-probabilities tell their offset from now on.

        Args:
            shown_chars: characters that are shown before the output.
            tail: the prompt's last tokens.
        """
        self._offset = shown_chars
        self.detokenizer.feed(tail)

    def feed(self, ids: Sequence[int], logprobs: Sequence[work_pb2.TokenLogprobs] = ()) -> Output:
        """Take the next ids, and their log-probabilities if asked for."""
        if not logprobs and not self._is_counting:
            return Output(self._parsed(self._stopped(self.detokenizer.feed(ids))), [])
        pieces: list[Piece] = []
        entries = token_entries(ids, logprobs) if logprobs else []
        released: list[TokenEntry] = []
        for position, token in enumerate(ids):
            entry = entries[position] if position < len(entries) else None
            if self.matched is None:
                pieces += self._feed_one(token, entry)
                released += self._released()
        return Output(pieces, released)

    def finish(self, *, is_cut: bool) -> Output:
        """The tokens are over. Not to be called after a match.

        Args:
            is_cut: something other than the model has ended it.
        """
        text = self._stopped(self.detokenizer.finish())
        if self._stop is not None and self.matched is None:
            text += self._stop.finish()
        pieces = self._parsed(text)
        if self.matched is None:
            pieces += self._ended(is_cut=is_cut)
            self._released_chars = self._fed_chars
        return Output(pieces, self._released())

    def end_entry(self, token: int, logprobs: Sequence[work_pb2.TokenLogprobs]) -> list[TokenEntry]:
        """The log-probability of the token that ended the choice, which stands where the text ends."""
        return [self._placed(entry) for entry in token_entries((token,), logprobs)]

    def _placed(self, entry: TokenEntry) -> TokenEntry:
        return entry if self._offset is None else entry._replace(offset=self._offset + self._fed_chars)

    def _feed_one(self, token: int, entry: TokenEntry | None) -> list[Piece]:
        was_reasoning = self.parser is not None and self.parser.is_reasoning
        text = self.detokenizer.feed((token,))
        if entry is not None:
            self._held_logprobs.append((self._fed_chars, self._placed(entry)))
        self._fed_chars += len(text)
        text = self._stopped(text)
        self._released_chars += len(text)
        pieces = self._parsed(text)
        if was_reasoning and self.parser is not None and self.parser.is_reasoning:
            self.reasoning_tokens += 1
        return pieces

    def _stopped(self, text: str) -> str:
        stop = self._stop
        if stop is None:
            return text
        text = stop.feed(text)
        self.matched = stop.matched
        return text

    def _parsed(self, text: str) -> list[Piece]:
        """Pieces of released text, and the end of the parser where a stop string was found."""
        if self.parser is None:
            return [Content(text)] if text else []
        pieces = self._named(self.parser.feed(text)) if text else []
        if self.matched is not None:
            pieces += self._ended(is_cut=True)
        return pieces

    def _ended(self, *, is_cut: bool) -> list[Piece]:
        return [] if self.parser is None else self._named(self.parser.finish(is_cut=is_cut))

    def _named(self, pieces: list[Piece]) -> list[Piece]:
        """The pieces, every call with an id."""
        for position, piece in enumerate(pieces):
            if type(piece) is CallStart and piece.id is None:
                pieces[position] = CallStart(piece.call, piece.name, new_call_id(self._id_chars))
            elif type(piece) is CallEnd:
                self.has_calls = True
        return pieces

    def _released(self) -> list[TokenEntry]:
        """Entries of the tokens whose text has begun to come out; all of what is left where nothing is held back."""
        held = self._held_logprobs
        released: list[TokenEntry] = []
        is_all_out = self._released_chars == self._fed_chars
        while held and (is_all_out or held[0][0] < self._released_chars):
            released.append(held.popleft()[1])
        return released
