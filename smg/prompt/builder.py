"""Turns chats, texts and id lists into prompts for one tokenizer directory.

load() reads the directory once and checks what the shortcuts rest on: that segments between control tokens tokenize
independently, that the decoding table and the fast backend are exact. What does not hold is not used; the reference
library is always right and always there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from smg.errors import InvalidRequest
from smg.prompt.content import ContentGuard
from smg.prompt.continued import render_open
from smg.prompt.conventions import conventions_of
from smg.prompt.directory import DEFAULT_TEMPLATE, TOOL_TEMPLATE, read_tokenizer_directory
from smg.prompt.harmony import CONVENTIONS, STOP_TOKENS, HarmonyTemplate, is_harmony
from smg.prompt.loading import load_parts
from smg.prompt.packed import ID_BYTES, pack_ids
from smg.prompt.reading import CHUNK_CHARS, ReadText, read_ids, read_spans
from smg.prompt.sandbox import MAX_OUTPUT_CHARS
from smg.prompt.segments import too_long
from smg.prompt.template import MARK_VARIABLE, ChatTemplate
from smg.prompt.thinking import ThinkingSupport, continued_reasoning, open_reasoning, thinking_support

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from smg.prompt.conventions import Conventions
    from smg.prompt.loading import Parts
    from smg.prompt.segments import Frame

_log = logging.getLogger(__name__)
_NO_VARIABLES: Mapping[str, Any] = {}
_TRIAL_SECONDS = 0.5


class TokenPrompt(NamedTuple):
    """A prompt.

    Attributes:
        ids: token ids, unsigned, 32 bits, little-endian.
        tokens: how many.
        text: as rendered, for logs and echo; for a prompt given as ids, those decoded.
        in_reasoning: whether a chat ends inside a reasoning block (True) or right after one (False); None for neither.
    """

    ids: bytes
    tokens: int
    text: str
    in_reasoning: bool | None = None


class KnownTemplate(NamedTuple):
    """A template, and what was found out about it."""

    template: ChatTemplate | HarmonyTemplate
    conventions: Conventions
    thinking: ThinkingSupport


class PromptBuilder:
    """Immutable, safe to use from several threads.

    Attributes:
        tokenizer: tables, encoding, decoding.
        has_chat_template: whether chat() can work.
        stop_ids: tokens that end an answer beside those of which engines know.
        is_harmony: chats are written in Harmony, not by a template of the model's.
        template_text: what the templates can write literally, parts separated by NUL.
        pairing: what stands around two texts that are read together; None where the tokenizer does not tell.
    """

    def __init__(self, parts: Parts, templates: Mapping[str, KnownTemplate]) -> None:
        """Use load()."""
        self._prompts = parts.prompts
        self._prefix, self._suffix = parts.prefix, parts.suffix
        self._plain = parts.plain
        self.pairing = parts.pairing
        self._named_tokens = parts.named_tokens
        self._templates = templates
        self._longest_token = parts.longest_token
        self.tokenizer = parts.tokenizer
        self.is_harmony = any(isinstance(known.template, HarmonyTemplate) for known in templates.values())
        stops = STOP_TOKENS if self.is_harmony else ()
        self.stop_ids = tuple(control.id for control in parts.controls if control.text in stops)
        self.has_chat_template = bool(templates)
        self.template_text = "\0".join(known.template.text for known in templates.values())
        self._guard = ContentGuard(
            parts.controls,
            self.template_text,
            frozenset[str]().union(*(known.template.names for known in templates.values())),
        )

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        chat_template: str | None = None,
        backend: Literal["auto", "reference"] = "auto",
        cache_bytes: int = 64 << 20,
        max_output_chars: int = MAX_OUTPUT_CHARS,
    ) -> PromptBuilder:
        """Load a tokenizer directory and check it; takes some tenths of a second.

        Args:
            directory: with tokenizer.json and the files around it.
            chat_template: Jinja source to use instead of the directory's.
            backend: "auto" takes the fast backend where it proves exact.
            cache_bytes: bound of the segment cache; 0 to do without.
            max_output_chars: longest prompt that a template may render.

        Raises:
            ValueError: a file is missing or wrong; the message says which.
        """
        found = read_tokenizer_directory(directory)
        sources = found.templates if chat_template is None else {DEFAULT_TEMPLATE: chat_template}
        templates = {
            name: ChatTemplate(source, max_output_chars=max_output_chars) for name, source in sources.items()
        }
        written = "\0".join(template.text for template in templates.values())
        parts = load_parts(found, written, use_fast=backend == "auto", cache_bytes=cache_bytes)
        _log.info("tokenizer %s: %s", directory, parts.summary)
        if chat_template is None and is_harmony(control.text for control in parts.controls):
            harmony = KnownTemplate(HarmonyTemplate(), CONVENTIONS, ThinkingSupport())
            return cls(parts, {DEFAULT_TEMPLATE: harmony})
        known = {name: _known(template, parts) for name, template in templates.items()}
        return cls(parts, known)

    def template_for(self, *, with_tools: bool) -> KnownTemplate:
        """The template that chat() takes: the default, or with tools the one for them, where there is one.

        Raises:
            InvalidRequest: there is none.
        """
        known = self._templates.get(TOOL_TEMPLATE) if with_tools else None
        known = known or self._templates.get(DEFAULT_TEMPLATE)
        if known is None:
            named = ", ".join(sorted(self._templates))
            which = f"no chat template but those named {named}" if named else "no chat template"
            raise InvalidRequest(f"this model has {which}; use the completions endpoint instead")
        return known

    def chat(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] = _NO_VARIABLES,
        max_tokens: int | None = None,
    ) -> TokenPrompt:
        """Render a chat and tokenize it.

        Args:
            messages: as the OpenAI API has them; not changed.
            tools: likewise.
            add_generation_prompt: open the answer; without effect together with continue_final_message.
            continue_final_message: leave the last message open for the model to go on.
            variables: more variables for the template, `documents` among them; they may replace named tokens.
            max_tokens: longest prompt; a longer one is refused before all of it is tokenized. None for any length.

        Raises:
            ContextTooLong: it has more tokens.
            InvalidRequest: no template, or it refuses or fails on this chat.
        """
        known = self.template_for(with_tools=bool(tools))
        messages = known.conventions.adapted(messages)
        mark = ""
        if self._guard.needs_marks(messages, tools, variables):
            mark, messages, (tools, variables) = self._guard.with_marks(messages, tools, variables)
        scope = {
            "documents": None,
            **self._named_tokens,
            **variables,
            "messages": messages,
            "tools": tools,
            MARK_VARIABLE: mark,
        }
        if continue_final_message:
            rendered, final_text = render_open(known.template, scope, mark)
            in_reasoning = continued_reasoning(rendered, final_text, known.thinking.tags)
        else:
            rendered = known.template.render({**scope, "add_generation_prompt": add_generation_prompt})
            in_reasoning = open_reasoning(rendered, known.thinking.tags)
        text = rendered.replace(mark, "") if mark else rendered
        self._refuse_long(text, max_tokens)
        ids = self._prompts.encode_rendered(rendered, mark, max_tokens=max_tokens)
        return TokenPrompt(ids, len(ids) // ID_BYTES, text, in_reasoning)

    def rendered(self, message: str, variables: Mapping[str, Any]) -> str:
        """The template's prompt for one message of the user, whose text is the router's own: nothing in it is guarded.

        Raises:
            InvalidRequest: no template, or it refuses the message.
        """
        known = self.template_for(with_tools=False)
        scope = {
            "documents": None,
            **self._named_tokens,
            **variables,
            "messages": known.conventions.adapted([{"role": "user", "content": message}]),
            "tools": None,
            MARK_VARIABLE: "",
            "add_generation_prompt": True,
        }
        return known.template.render(scope)

    def frame(self, before: str, after: str) -> Frame:
        """What a rendered prompt has around a message, in tokens."""
        return self._prompts.frame(before, after)

    def encode_rendered(self, rendered: str) -> bytes:
        """Packed ids of a rendered prompt whose control tokens all count."""
        return self._prompts.encode_rendered(rendered)

    def encode_plain(self, text: str, *, max_tokens: int | None = None) -> bytes:
        """Packed ids of text in which no control token counts, with nothing around it.

        Raises:
            ContextTooLong: it has more tokens than max_tokens.
        """
        self._refuse_long(text, max_tokens)
        return self._prompts.encode_text(text, max_tokens=max_tokens)

    def text(self, text: str, *, max_tokens: int | None = None) -> TokenPrompt:
        """Tokenize a text, with what the tokenizer adds around one (a beginning-of-sequence token, mostly).

        Args:
            text: any.
            max_tokens: most tokens, those around the text counted; None for any number.

        Raises:
            ContextTooLong: it has more tokens.
            InvalidRequest: the text has a lone surrogate.
        """
        self._refuse_long(text, max_tokens)
        around = len(self._prefix + self._suffix) // ID_BYTES
        inner = self._prompts.encode_text(text, max_tokens=max_tokens, reserved=around)
        ids = self._prefix + inner + self._suffix
        return TokenPrompt(ids, len(ids) // ID_BYTES, text)

    @property
    def around_tokens(self) -> int:
        """How many tokens surrounded() puts around a text."""
        return len(self._prefix + self._suffix) // ID_BYTES

    @property
    def prefix_tokens(self) -> int:
        """How many of those stand before it."""
        return len(self._prefix) // ID_BYTES

    def surrounded(self, ids: bytes) -> bytes:
        """Packed ids of a text with what the tokenizer adds around one."""
        return self._prefix + ids + self._suffix

    def read(self, text: str, max_tokens: int, *, with_spans: bool = False) -> ReadText:
        """The tokens of a text, nothing around them: more than max_tokens, or all there are, or as many as the longest
        text has that is read for so many (see reading.py).

        Time and memory go by max_tokens, not by the length of the text.

        Raises:
            InvalidRequest: the text has a lone surrogate.
        """
        if with_spans:
            return read_spans(text, self._plain.encode_spans, max_tokens)
        if len(text) <= CHUNK_CHARS:
            return ReadText(self._prompts.encode_text(text), [], True)
        return read_ids(text, self._plain.encode, max_tokens)

    def ids(self, ids: Sequence[int]) -> TokenPrompt:
        """Take ids as they are. Raises as packed()."""
        return TokenPrompt(self.packed(ids), len(ids), self.tokenizer.decode(ids, skip_special_tokens=False))

    def packed(self, ids: Sequence[int], name: str = "") -> bytes:
        """Pack ids, without a look at the text that they stand for.

        Args:
            ids: the ids.
            name: what they are called where one is refused.

        Raises:
            InvalidRequest: one is not in the vocabulary, or is no whole number.
        """
        highest = self.tokenizer.vocab_size - 1
        try:
            packed = pack_ids(ids)
        except (OverflowError, TypeError):
            packed = None
        if packed is None or max(ids, default=0) > highest:
            position, wrong = next(
                (n, i) for n, i in enumerate(ids) if not isinstance(i, int) or not 0 <= i <= highest
            )
            where = f"{name}: " if name else ""
            raise InvalidRequest(
                f"{where}token id {wrong!r} at position {position} is not in the vocabulary;"
                f" allowed are 0 to {highest}",
                param=name or None,
            )
        return packed

    def _refuse_long(self, text: str, max_tokens: int | None) -> None:
        """Refuse what cannot fit without a look at its tokens."""
        if max_tokens is None or self._longest_token is None:
            return
        if len(text) > max_tokens * self._longest_token:
            raise too_long(max_tokens)


def _known(template: ChatTemplate, parts: Parts) -> KnownTemplate:
    vocabulary = frozenset(control.text for control in parts.controls)
    return KnownTemplate(
        template,
        conventions_of(template, parts.named_tokens, max_seconds=_TRIAL_SECONDS),
        thinking_support(template, parts.named_tokens, vocabulary=vocabulary, max_seconds=_TRIAL_SECONDS),
    )
