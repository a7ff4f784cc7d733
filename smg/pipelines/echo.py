"""The prompt of a text completion as its choices show it, and go on from it.

A choice's text begins where the prompt's ends: the first token keeps its leading space, and bytes of a character that
the prompt's last token began are completed by the continuation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.errors import InternalError
from smg.pipelines.logprobs import TokenRows, token_entries
from smg.prompt.detokenizer import Detokenizer
from smg.prompt.packed import unpack_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from smg.pipelines.logprobs import Logprobs
    from smg.prompt.builder import TokenPrompt
    from smg.prompt.tokenizer import Tokenizer
    from smg_proto.engine.v1 import work_pb2

# The pieces that a prompt is shown in: a client refuses messages over 4 MiB unless told otherwise.
PART_CHARS = 64 * 1024
PART_TOKENS = 64
# An unfinished character has at most three bytes, and special tokens among them have none.
TAIL_TOKENS = 16


class EchoPart(NamedTuple):
    """A portion of a prompt.

    Attributes:
        text: more of its text.
        logprobs: of the tokens that the text consists of, if they are shown.
    """

    text: str
    logprobs: Logprobs


class PromptEcho(NamedTuple):
    """One prompt, for all its choices.

    Attributes:
        tail: its last tokens.
        text: what is shown before the continuation; empty where no echo was asked for.
        ids: its tokens, where their log-probabilities are shown; else empty.
        offsets: of those tokens in the text, in characters.
        name: how errors call it; empty where it is the only one.
    """

    tail: Sequence[int]
    text: str = ""
    ids: Sequence[int] = ()
    offsets: Sequence[int] = ()
    name: str = ""

    @property
    def is_shown(self) -> bool:
        """There is something to write before the continuation."""
        return bool(self.text or self.ids)

    def check(self, rows: Sequence[work_pb2.TokenLogprobs]) -> None:
        """See that an engine gave what is to be shown.

        Raises:
            InternalError: it gave too few or too many log-probabilities: a sum over them would be wrong.
        """
        if self.ids and len(rows) != len(self.ids):
            raise InternalError(
                f"the engine gave {len(rows)} log-probabilities for the {len(self.ids)} tokens of the prompt",
                code="prompt_logprobs_missing",
            )

    def parts(self, tokenizer: Tokenizer, rows: Sequence[work_pb2.TokenLogprobs]) -> Iterator[EchoPart]:
        """The text and its tokens' log-probabilities, in portions.

        Args:
            tokenizer: gives the text and bytes of an id.
            rows: one per token; not read where no log-probabilities are shown.
        """
        if not self.ids:
            for start in range(0, len(self.text), PART_CHARS):
                yield EchoPart(self.text[start : start + PART_CHARS], ())
            return
        shown = 0
        for start in range(0, len(self.ids), PART_TOKENS):
            end = start + PART_TOKENS
            entries = token_entries(self.ids[start:end], rows[start:end], self.offsets[start:end])
            until = self.offsets[end] if end < len(self.ids) else len(self.text)
            yield EchoPart(self.text[shown:until], TokenRows(tokenizer, entries))
            shown = until


class SharedEcho:
    """A prompt as the choices of one attempt show it. The engine tells its log-probabilities to the first of them.

    Attributes:
        prompt: the prompt.
        is_told: nothing is missing.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: PromptEcho) -> None:
        self.prompt = prompt
        self.is_told = not prompt.ids
        self._source = prompt.parts(tokenizer, ()) if self.is_told else None
        self._tokenizer = tokenizer
        self._choices = 0
        # By place, with how many choices have not had it yet: what all have had is forgotten at once, not at the end,
        # where forgetting it all would take long.
        self._parts: dict[int, tuple[int, EchoPart]] = {}
        self._waiting: list[Callable[[], None]] = []

    def claim(self) -> bool:
        """Say that a choice will show it. True for the first one, which tells."""
        self._choices += 1
        return self._choices == 1

    def tell(self, rows: Sequence[work_pb2.TokenLogprobs]) -> None:
        """Take the log-probabilities, and let those go on that wait for them.

        Raises:
            InternalError: there are too few or too many of them.
        """
        self.prompt.check(rows)
        self._source = self.prompt.parts(self._tokenizer, rows)
        self.is_told = True
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def when_told(self, go_on: Callable[[], None]) -> None:
        """Call back as soon as nothing is missing."""
        self._waiting.append(go_on)

    def parts(self) -> Iterator[EchoPart]:
        """As PromptEcho.parts, for one choice; each is made once, for all of them. To be called once it is told."""
        place = 0
        while (part := self._part(place)) is not None:
            yield part
            place += 1

    def _part(self, place: int) -> EchoPart | None:
        known = self._parts.pop(place, None)
        if known is None:
            part = next(self._source, None) if self._source is not None else None
            if part is None:
                return None
            known = (self._choices, part)
        missing, part = known[0] - 1, known[1]
        if missing:
            self._parts[place] = (missing, part)
        return part


def prompt_echo(
    tokenizer: Tokenizer, prompt: TokenPrompt, *, is_text: bool, echo: bool, logprobs: bool, name: str = ""
) -> PromptEcho:
    """How a prompt is shown.

    Args:
        tokenizer: the model's.
        prompt: the prompt.
        is_text: it was given as text, so what the tokenizer puts around one is not part of it.
        echo: it is to be shown.
        logprobs: with the log-probabilities of its tokens.
        name: see PromptEcho.
    """
    ids = unpack_ids(prompt.ids if echo else prompt.ids[-TAIL_TOKENS * 4 :])
    tail = ids[-TAIL_TOKENS:]
    if not echo:
        return PromptEcho(tail, name=name)
    # Bytes of an unfinished character come with the continuation.
    text = prompt.text if is_text else Detokenizer(tokenizer, skip_special_tokens=False).feed(ids)
    if not logprobs:
        return PromptEcho(tail, text, name=name)
    return PromptEcho(tail, text, ids, _offsets(tokenizer, ids, len(text), is_text=is_text), name)


def _offsets(tokenizer: Tokenizer, ids: Sequence[int], length: int, *, is_text: bool) -> list[int]:
    """Where each token begins; never past the end, where a tokenizer's normalization has changed the length."""
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=is_text)
    offsets: list[int] = []
    position = 0
    for token in ids:
        offsets.append(min(position, length))
        position += len(detokenizer.feed((token,)))
    return offsets
