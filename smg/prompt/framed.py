"""Makes prompts of one user message whose beginning is shared: the beginning is tokenized once, each ending by itself.

A chat template puts a frame around a message. Where it writes the message as it is, once, the frame can be taken apart
from it: control tokens of the frame count, whatever the message spells is plain text. The message itself is cut at a
place where no tokenizer joins both sides; both halves are checked on probes against the template's own prompt. Where
that does not hold, every prompt is tokenized as a whole, and what their ids begin with is shared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.prompt.packed import ID_BYTES, unpack_ids
from smg.prompt.thinking import open_reasoning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from smg.prompt.builder import PromptBuilder
    from smg.prompt.segments import Frame

# Private use: it stands in no template and in no vocabulary.
_MARK = "\ue0c4"
_PROBES = ("Zq7.", "one two", "a, b\nc!", "\u65e5\u672c\u8a9e", "1 + 1 = 2")


class SharedPrompts(NamedTuple):
    """Prompts with one beginning.

    Attributes:
        prefix: packed ids that all of them begin with.
        suffixes: packed ids that follow, one entry a prompt; none is empty.
    """

    prefix: bytes
    suffixes: list[bytes]


class MessagePrompts:
    """Prompts of one model that are one user message each, with thinking off where the template can be told.

    Attributes:
        is_split: beginnings and endings are tokenized apart, and that is exact.
    """

    def __init__(self, builder: PromptBuilder, stem: str, ending: str) -> None:
        """Find out how.

        Args:
            builder: of the model.
            stem: what the shared beginning ends with.
            ending: an ending to check with.

        Raises:
            InvalidRequest: there is no template, or it refuses a plain question.
        """
        self._builder = builder
        self._stem = stem
        known = builder.template_for(with_tools=False)
        self.variables: Mapping[str, Any] = {name: False for name in known.thinking.toggles[:1]}
        self._is_steady = known.template.is_steady
        self._framed: tuple[str, Frame | None] | None = None
        self.is_split = all(self._is_exact(probe, ending) for probe in _PROBES)

    def shared(self, state: str, endings: Sequence[str], *, max_tokens: int | None = None) -> SharedPrompts:
        """Tokenize prompts about one state.

        Args:
            state: what all of them begin with, before the stem.
            endings: what follows the stem, at least one.
            max_tokens: most tokens of the beginning; None for any number.

        Raises:
            ContextTooLong: the beginning has more.
            InvalidRequest: the template refuses the message, or text is not Unicode.
        """
        if not self.is_split:
            return self._whole(state, endings, max_tokens)
        frame = self._frame()
        assert frame is not None  # noqa: S101 - is_split says so
        encode = self._builder.encode_plain
        return SharedPrompts(
            frame.head_ids + encode(frame.head_text + state + self._stem, max_tokens=max_tokens),
            [encode(ending + frame.tail_text) + frame.tail_ids for ending in endings],
        )

    def token_finder(self, ending: str) -> Callable[[str], int | None]:
        """How to find the one token that a text adds to a prompt with this ending; None where it adds none or several."""
        rendered = self._builder.rendered(f"{_PROBES[0]}{self._stem}{ending}", self.variables)
        prompt = self._builder.encode_rendered(rendered)

        def token(text: str) -> int | None:
            return single_id(prompt, self._builder.encode_rendered(rendered + text))

        return token

    def ends_in_reasoning(self, ending: str) -> bool:
        """Whether a prompt leaves a reasoning block open for the model to fill."""
        rendered = self._builder.rendered(f"{_PROBES[0]}{self._stem}{ending}", self.variables)
        return open_reasoning(rendered) is True

    def _is_exact(self, state: str, ending: str) -> bool:
        frame = self._frame()
        if frame is None:
            return False
        encode = self._builder.encode_plain
        made = (
            frame.head_ids
            + encode(frame.head_text + state + self._stem)
            + encode(ending + frame.tail_text)
            + frame.tail_ids
        )
        return made == self._chat(state + self._stem + ending)

    def _frame(self) -> Frame | None:
        """The frame, rendered anew where the template may write the date. None where the message is not in it just once."""
        framed = self._framed
        if framed is not None and self._is_steady:
            return framed[1]
        rendered = self._builder.rendered(_MARK, self.variables)
        if framed is None or framed[0] != rendered:
            before, found, after = rendered.partition(_MARK)
            is_once = bool(found) and _MARK not in after
            framed = self._framed = rendered, self._builder.frame(before, after) if is_once else None
        return framed[1]

    def _chat(self, message: str, max_tokens: int | None = None) -> bytes:
        return self._builder.chat(
            [{"role": "user", "content": message}], variables=self.variables, max_tokens=max_tokens
        ).ids

    def _whole(self, state: str, endings: Sequence[str], max_tokens: int | None) -> SharedPrompts:
        prompts = [self._chat(state + self._stem + ending, max_tokens) for ending in endings]
        shared = _common(prompts)
        return SharedPrompts(prompts[0][:shared], [prompt[shared:] for prompt in prompts])


def _common(prompts: Sequence[bytes]) -> int:
    """Bytes of whole ids that all begin with; each prompt keeps one id for itself at least."""
    first, last = min(prompts), max(prompts)
    most = min(map(len, prompts)) - ID_BYTES
    length = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), most)
    return max(0, min(length, most)) // ID_BYTES * ID_BYTES


def single_id(prompt: bytes, longer: bytes) -> int | None:
    """The id that a longer prompt has more, where it is just one and the others are the same."""
    if len(longer) != len(prompt) + ID_BYTES or not longer.startswith(prompt):
        return None
    return unpack_ids(longer[-ID_BYTES:])[0]
