"""`smg chat`: a conversation with a running gateway, in the terminal or through a pipe."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import ssl
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from smg.settings import environment

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

ABOUT = "Talk to a running gateway. /reset forgets the conversation, /exit ends, Ctrl-C stops an answer."

_CONNECT_TIMEOUT_S = 5.0
_READ_TIMEOUT_S = 600.0
_DATA = "data: "
_OK, _UNAUTHORIZED = 200, 401


class ChatError(Exception):
    """The gateway refused, or could not be reached. The text is for the user."""


@dataclass
class Conversation:
    """The turns so far, and how to ask for the next.

    Attributes:
        client: connected to the gateway.
        model: name of the model to ask.
        options: further fields of each request.
        opening: turns that a reset keeps (the system message).
        turns: what has been said.
    """

    client: httpx.Client
    model: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    opening: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    turns: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def ask(self, text: str) -> Generator[str]:
        """Say something and yield the pieces of the answer.

        What was yielded until the end, or until the caller stopped listening, becomes part of the conversation;
        a question without any answer does not.

        Raises:
            ChatError: refused, or the connection failed.
        """
        question = {"role": "user", "content": text}
        answer: list[str] = []
        body = {
            "model": self.model,
            "messages": [*self.opening, *self.turns, question],
            "stream": True,
            **self.options,
        }
        try:
            for piece in _stream(self.client, body):
                answer.append(piece)
                yield piece
        finally:
            if answer:
                self.turns += [question, {"role": "assistant", "content": "".join(answer)}]

    def reset(self) -> None:
        """Forget what has been said."""
        self.turns.clear()


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = _parser().parse_args(list(arguments))
    key: str | None = options.api_key or environment().get("SMG_API_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    timeout = httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
    try:
        verify = ssl.create_default_context(cafile=options.ca_cert) if options.ca_cert else True
    except OSError as error:
        _say(f"smg chat: --ca-cert '{options.ca_cert}': {error.strerror or error}")
        return 1
    with httpx.Client(base_url=options.url, headers=headers, timeout=timeout, verify=verify) as client:
        try:
            model = options.model or first_model(client)
        except ChatError as error:
            _say(f"smg chat: {error}")
            return 1
        opening = [{"role": "system", "content": options.system}] if options.system else []
        fields = {"temperature": options.temperature, "max_tokens": options.max_tokens}
        wanted = {name: value for name, value in fields.items() if value is not None}
        return _talk(Conversation(client, model, wanted, opening), is_terminal=sys.stdin.isatty())


def first_model(client: httpx.Client) -> str:
    """Name of the first model that the gateway serves. Raises ChatError when there is none."""
    try:
        answer = client.get("/v1/models")
    except httpx.HTTPError as error:
        raise ChatError(f"no gateway at {client.base_url}: {error}") from None
    if answer.status_code != _OK:
        raise ChatError(_refusal(answer.status_code, answer.text))
    models: list[Any] = answer.json()["data"]
    if not models:
        raise ChatError("the gateway serves no model yet")
    return str(models[0]["id"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="smg chat", description=ABOUT, allow_abbrev=False)
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="the gateway (default: %(default)s)")
    parser.add_argument("--model", help="model to talk to (default: the first one served)")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--temperature", type=float, metavar="NUMBER", help="0 takes the likeliest words")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="longest answer, in tokens")
    parser.add_argument("--api-key", metavar="KEY", help="key to show; better given as SMG_API_KEY")
    parser.add_argument(
        "--ca-cert",
        "--ca-cert-path",
        dest="ca_cert",
        metavar="FILE",
        help="authority of the gateway's certificate, PEM; else the system's",
    )
    return parser


def _talk(conversation: Conversation, *, is_terminal: bool) -> int:
    """Read lines and answer them until the end of the input. Returns the exit status."""
    if is_terminal:
        # Loading it gives input() line editing and history; some builds of Python lack it.
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")
        _say(f"{conversation.model} · /help /reset /exit · Ctrl-C stops an answer")
    status = 0
    while (line := _read_line(is_terminal=is_terminal)) is not None:
        match line.strip():
            case "":
                continue
            case "/exit" | "/quit":
                break
            case "/reset":
                conversation.reset()
            case "/help" | "/?":
                _say(ABOUT)
            case text:
                # A script must see that an answer is missing; a person has read the message.
                status = 0 if _answer(conversation, text) or is_terminal else 1
    return status


def _read_line(*, is_terminal: bool) -> str | None:
    """The next line; None at the end of the input. Ctrl-C at the prompt starts a new line."""
    while True:
        try:
            return input("> " if is_terminal else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not is_terminal:
                raise
            _write("\n")


def _answer(conversation: Conversation, text: str) -> bool:
    """Print the answer piece by piece. Returns False when there was none."""
    pieces = conversation.ask(text)
    try:
        for piece in pieces:
            _write(piece)
    except ChatError as error:
        _say(f"smg chat: {error}")
        return False
    except KeyboardInterrupt:
        _write(" [stopped]")
    finally:
        # Closing the generator closes the connection, which stops the engine's work on it.
        pieces.close()
    _write("\n")
    return True


def _stream(client: httpx.Client, body: dict[str, Any]) -> Iterator[str]:
    """Text pieces of a streamed chat completion."""
    try:
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != _OK:
                answer.read()
                raise ChatError(_refusal(answer.status_code, answer.text))
            for line in answer.iter_lines():
                if line.startswith(_DATA) and not line.endswith("[DONE]"):
                    yield from _pieces(json.loads(line.removeprefix(_DATA)))
    except httpx.HTTPError as error:
        raise ChatError(f"the connection failed: {error}") from None


def _pieces(chunk: dict[str, Any]) -> Iterator[str]:
    if "error" in chunk:
        raise ChatError(str(chunk["error"].get("message", chunk["error"])))
    for choice in chunk.get("choices", ()):
        piece = choice["delta"].get("content")
        if piece:
            yield piece


def _refusal(status: int, body: str) -> str:
    """The gateway's own words where it gave any."""
    try:
        message: object = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = body.strip() or ("a key is needed; set SMG_API_KEY" if status == _UNAUTHORIZED else "")
    return f"the gateway answered {status}: {message}"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 -- a command line talks
