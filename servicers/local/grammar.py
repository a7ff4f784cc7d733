"""Turns constraints into masks over the vocabulary, through llguidance.

Fails closed: a constraint that cannot be compiled refuses its sequence before the first token, and a fault later
loses the sequence; there is no way to unconstrained output. Compiling can take a second for a huge schema and
leaves Python's lock, so it runs in a pool while the sequence waits. Compiled grammars are kept; each sequence gets
a copy of the state.
"""

from __future__ import annotations

import collections
import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from servicers.local.ebnf import EbnfError, ebnf_to_lark
from servicers.local.late_grammar import LateGrammar, Opening
from servicers.local.refusal import INTERNAL, RefusalError
from servicers.local.schema_cost import refuse_costly
from servicers.local.schema_places import places_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from smg_proto.engine.v1 import work_pb2

KINDS = ("json_schema", "regex", "ebnf", "lark")
"""Kinds of Constraint that are served."""
_SPACE = r"[\x20\x0A\x0D\x09]{1,32}"
"""White space between JSON tokens. Bounded, for a small model may otherwise put out nothing else for ever."""
_SHOWN_CHARACTERS = 300
# llguidance names limits by the reason for which it stopped, or while it compiles in its message alone.
_LIMIT_REASONS = ("ParserTooComplex", "LexerTooComplex")
_LIMIT_SIGNS = (
    "too many expressions",
    "too large",
    "too many states",
    "fuel exhausted",
    "size limit",
    "too complex",
    "items; max is",
)
_ENDLESS = "NoExtensionBias"
MOST_SECONDS = 0.5
"""Of processor time for one token of one sequence: everybody else's step waits for it. Usual is less than 0.001."""


class Grammar:
    """The constraint of one sequence and how far its output has come in it."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    @property
    def is_finished(self) -> bool:
        """The output is complete and nothing can follow but an end token."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def allowed(self) -> NDArray[np.bool_]:
        """Which tokens may come next, [vocabulary].

        Raises:
            RefusalError: the mask could not be computed.
        """
        started_s = time.thread_time()
        mask = self._matcher.compute_bitmask()
        self._refuse_slow(started_s)
        # A broken matcher allows the end token; that would pass off a cut output as a whole one.
        self._check()
        bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")
        return bits[: self._vocab_size].view(np.bool_)

    def accept(self, token: int) -> None:
        """The token was put out.

        Raises:
            RefusalError: it is not allowed here.
        """
        started_s = time.thread_time()
        self._matcher.consume_token(token)
        self._check()
        self._refuse_slow(started_s)

    def _refuse_slow(self, started_s: float) -> None:
        """End a sequence that has held up the others: the next token would do so again."""
        if time.thread_time() - started_s > MOST_SECONDS:
            raise RefusalError(
                f"the constraint is too large: one token of it took more than {MOST_SECONDS:g} s; use fewer or"
                " smaller repetitions and alternatives"
            )

    def _check(self) -> None:
        if self._matcher.is_error():
            if _is_too_large(self._matcher):
                raise RefusalError(_too_large("the constraint", self._matcher))
            raise RefusalError(
                f"the constraint could not be followed: {_brief(self._matcher.get_error())}", code=INTERNAL
            )


class GrammarCompiler:
    """Compiles constraints for one tokenizer. `compile` may be called from any thread."""

    def __init__(
        self, tokenizer_json: str, *, vocab_size: int, eos_token_ids: Sequence[int], capacity: int
    ) -> None:
        """Blocks for about 0.3 s, holding Python's lock.

        Args:
            tokenizer_json: text of the tokenizer.json.
            vocab_size: of the model; at least that of the tokenizer.
            eos_token_ids: ids that may end a complete output.
            capacity: most compiled grammars to keep.
        """
        self._tokenizer = LLTokenizer(tokenizer_json, n_vocab=vocab_size, eos_token=list(eos_token_ids))
        self._vocab_size = vocab_size
        self._capacity = capacity
        self._limits = LLParserLimits(verbose_errors=False)
        self._compiled: collections.OrderedDict[tuple[str, str], LLMatcher] = collections.OrderedDict()
        self._eos_token_ids = list(eos_token_ids)
        self._vocabulary: list[bytes] = []
        self._openings: collections.OrderedDict[bytes, Opening] = collections.OrderedDict()
        self._lock = threading.Lock()

    def compile(self, constraint: work_pb2.Constraint, output: Sequence[int] = ()) -> Grammar | LateGrammar:
        """Compile a constraint and follow the output so far.

        Raises:
            RefusalError: it does not compile, or the output breaks it.
        """
        kind = constraint.WhichOneof("kind")
        if kind not in KINDS:
            raise RefusalError(f"constraint kind {kind!r} is not served; served: {', '.join(KINDS)}")
        matcher = self._matcher(kind, getattr(constraint, kind))
        grammar = Grammar(matcher, self._vocab_size)
        if not constraint.begins_after:
            _follow(matcher, output, kind)
            return grammar
        late = LateGrammar(grammar, self._opening(constraint.begins_after.encode()))
        for position, token in enumerate(output, 1):
            # Other engines may let the form begin at the next token, after white space in this one.
            if late.follow(token).strip():
                raise RefusalError(f"output_ids do not follow the {kind} constraint")
            if late.has_begun:
                _follow(matcher, output[position:], kind)
                break
        return late

    def _matcher(self, kind: str, text: str) -> LLMatcher:
        key = (kind, text)
        with self._lock:
            known = self._compiled.get(key)
            if known is not None:
                self._compiled.move_to_end(key)
                return known.deep_copy()
        try:
            grammar_text = _grammar_text(kind, text)
        except ValueError as error:
            # Such as a schema nested deeper than the library reads.
            raise RefusalError(f"{kind} cannot be compiled: {_brief(str(error))}") from error
        matcher = LLMatcher(self._tokenizer, grammar_text, log_level=0, limits=self._limits)
        if not matcher.is_error():
            # The first mask finds the rest of what can be wrong, and warms the state that copies share.
            matcher.compute_bitmask()
        if matcher.is_error():
            if _is_too_large(matcher):
                raise RefusalError(_too_large(kind, matcher))
            raise RefusalError(
                f"{kind} cannot be compiled: {_reason(matcher.get_error())}{_where(kind, text, matcher)}"
            )
        with self._lock:
            self._compiled[key] = matcher
            while len(self._compiled) > self._capacity:
                self._compiled.popitem(last=False)
            return matcher.deep_copy()

    def _opening(self, text: bytes) -> Opening:
        with self._lock:
            opening = self._openings.get(text)
            if opening is None:
                if not self._vocabulary:
                    ids = range(self._vocab_size)
                    self._vocabulary = [self._tokenizer.decode_bytes([token]) for token in ids]
                opening = self._openings[text] = Opening(text, self._vocabulary, self._eos_token_ids)
                while len(self._openings) > self._capacity:
                    self._openings.popitem(last=False)
            return opening


class GrammarPool:
    """Compiles in threads of its own and calls back."""

    def __init__(self, compiler: GrammarCompiler, *, threads: int = 1) -> None:
        self._compiler = compiler
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="smg-grammar")

    def start(
        self,
        constraint: work_pb2.Constraint,
        output: Sequence[int],
        done: Callable[[Grammar | LateGrammar | RefusalError], None],
    ) -> Future[None]:
        """Compile in the background; `done` is called in a pool thread. The result tells whether that has begun."""

        def work() -> None:
            try:
                result = self._compiler.compile(constraint, output)
            except RefusalError as refusal:
                result = refusal
            except Exception as error:  # noqa: BLE001 - a sequence must not wait for ever
                result = RefusalError(f"compiling the constraint failed: {error!r}", code=INTERNAL)
            done(result)

        return self._pool.submit(work)

    def stop(self) -> None:
        """Drop what has not begun and wait for the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _follow(matcher: LLMatcher, output: Sequence[int], kind: str) -> None:
    if output and matcher.try_consume_tokens(list(output)) < len(output):
        raise RefusalError(f"output_ids do not follow the {kind} constraint")


def _grammar_text(kind: str, text: str) -> str:
    """The constraint in llguidance's own form."""
    if kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    if kind == "lark":
        return LLMatcher.grammar_from_lark(text)
    if kind == "ebnf":
        try:
            return LLMatcher.grammar_from_lark(ebnf_to_lark(text))
        except EbnfError as error:
            raise RefusalError(f"ebnf cannot be compiled: {error}") from error
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusalError(f"json_schema is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise RefusalError(
            f"json_schema is a JSON {type(schema).__name__}; it must be an object or a boolean"
        )
    if isinstance(schema, bool):
        if not schema:
            raise RefusalError("json_schema is false, which allows nothing")
        text = "{}"
    else:
        refuse_costly(schema)
    # `lenient` would drop keywords that are not understood: the output would not be what was asked for.
    return LLMatcher.grammar_from_json_schema(
        text, overrides={"lenient": False, "whitespace_pattern": _SPACE, "whitespace_flexible": True}
    )


def _is_too_large(matcher: LLMatcher) -> bool:
    """Whether it failed at a limit of size or work; who wrote the constraint can mend that, nobody else."""
    return matcher.stop_reason() in _LIMIT_REASONS or any(
        sign in matcher.get_error() for sign in _LIMIT_SIGNS
    )


def _too_large(what: str, matcher: LLMatcher) -> str:
    return (
        f"{what} is too large: it needs more states than the engine allows; use fewer or smaller repetitions and"
        f" alternatives ({_brief(matcher.get_error())})"
    )


def _reason(message: str) -> str:
    if _ENDLESS in message:
        return "it refers to itself without end, so there is no value that it describes"
    return _brief(message)


def _where(kind: str, text: str, matcher: LLMatcher) -> str:
    """Where in a schema the fault is, in words; empty where that is not known."""
    places = places_of(json.loads(text), matcher.get_error()) if kind == "json_schema" else []
    return f" (at {', '.join(places)})"[:_SHOWN_CHARACTERS] if places else ""


def _brief(message: str) -> str:
    """The first part of llguidance's message, without the dump of its state."""
    message = message.partition("\n<state>")[0].partition("\n<non-verbose/>")[0]
    return message.strip()[:_SHOWN_CHARACTERS]
