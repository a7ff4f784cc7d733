"""Carries an engine's log-probabilities to the sinks as they are, and turns them into what clients see there.

A prompt may have a hundred thousand tokens, each with several likely ones: nothing is made of them but the client's own
form, once, however many choices show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import orjson

from smg_proto.common.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from smg.prompt.tokenizer import Tokenizer
    from smg_proto.engine.v1 import work_pb2

# JSON has no infinity: what an engine reports as impossible, or as no number, is shown as this, as OpenAI does.
LOWEST_LOGPROB = -9999.0

# What a token with a log-probability takes, and each of the likely ones beside it, in microseconds, about.
ENTRY_COST, LIKELY_COST = 6, 3

FormT = TypeVar("FormT")


class TokenEntry(NamedTuple):
    """One token with what its engine said of it.

    Attributes:
        token: its id.
        row: the engine's.
        offset: where it stands in the choice's text, in characters.
    """

    token: int
    row: work_pb2.TokenLogprobs
    offset: int = 0


class TokenRows:
    """Log-probabilities of tokens that follow each other. Immutable.

    Iterating gives the messages of the typed API.

    Attributes:
        tokenizer: gives the text and bytes of an id.
        entries: the tokens.
    """

    __slots__ = ("_forms", "entries", "tokenizer")

    def __init__(self, tokenizer: Tokenizer, entries: Sequence[TokenEntry]) -> None:
        self.tokenizer = tokenizer
        self.entries = entries
        self._forms: dict[object, object] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[common_pb2.TokenLogprob]:
        return iter(self.form(TokenRows.messages))

    def form(self, make: Callable[[TokenRows], FormT]) -> FormT:
        """What a function of a module makes of them: made once, for all the choices that show these tokens."""
        made = self._forms.get(make)
        if made is None:
            made = self._forms[make] = make(self)
        return cast("FormT", made)

    def numbers(self) -> list[float]:
        """The log-probability of each token, as clients see it; 0 where there is none."""
        return [max(LOWEST_LOGPROB, entry.row.logprob) for entry in self.entries]

    def messages(self) -> list[common_pb2.TokenLogprob]:
        """The messages of the typed API."""
        return [self._message(entry) for entry in self.entries]

    def _message(self, entry: TokenEntry) -> common_pb2.TokenLogprob:
        token, row, offset = entry
        tokenizer = self.tokenizer
        # Field by field: a message made with arguments costs twice as much.
        answer = common_pb2.TokenLogprob()
        answer.token = tokenizer.token_text(token)
        answer.bytes = tokenizer.token_bytes(token)
        answer.token_id = token
        answer.text_offset = offset
        if row.HasField("logprob"):
            # In this order: every comparison with NaN is false, and max keeps its first argument then.
            answer.logprob = max(LOWEST_LOGPROB, row.logprob)
        for top, logprob in zip(row.top_token, row.top_logprob, strict=False):
            candidate = answer.top_logprobs.add()
            candidate.token = tokenizer.token_text(top)
            candidate.bytes = tokenizer.token_bytes(top)
            candidate.token_id = top
            candidate.logprob = max(LOWEST_LOGPROB, logprob)
        return answer


Logprobs = TokenRows | tuple[()]
"""What comes with some tokens; the empty tuple where nothing was asked for."""


def token_entries(
    ids: Sequence[int], rows: Iterable[work_pb2.TokenLogprobs], offsets: Iterable[int] | None = None
) -> list[TokenEntry]:
    """One entry per token, in order.

    Args:
        ids: the tokens.
        rows: as many, or fewer when the engine reported none for the last ones.
        offsets: as many as ids; 0 where there are none to tell.
    """
    if offsets is None:
        offsets = (0,) * len(ids)
    return list(map(TokenEntry, ids, rows, offsets))


def row_cost(row: work_pb2.TokenLogprobs) -> int:
    """Microseconds that it takes to write a token with such a row."""
    return ENTRY_COST + LIKELY_COST * len(row.top_token)


def number_texts(numbers: list[float]) -> list[str]:
    """Log-probabilities as JSON, each by itself."""
    if not numbers:
        return []
    data = orjson.dumps(numbers)
    if b"null" in data or min(numbers) < LOWEST_LOGPROB:
        data = orjson.dumps([max(LOWEST_LOGPROB, number) for number in numbers])
    return data[1:-1].decode().split(",")
