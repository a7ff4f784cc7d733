"""Turns the prompts of a text completion request into tokens, and into what its choices show of them.

A prompt is text: no spelling in it becomes a control token. Whoever wants those sends token ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from smg.errors import InvalidRequest
from smg.pipelines.chat_prompt import INLINE_PROMPT_CHARS
from smg.pipelines.echo import prompt_echo
from smg.pipelines.infill import infill_prompt
from smg.pipelines.off_loop import in_thread
from smg.pipelines.prompt_limits import check_context, most_tokens, never_empty

if TYPE_CHECKING:
    from smg.pipelines.catalog import ServedModel
    from smg.pipelines.echo import PromptEcho
    from smg.prompt.builder import TokenPrompt
    from smg_proto.chat.v1 import completion_pb2

# Where each token stands in the text takes 2 µs a token; of more than so many bytes it is found out in a thread.
INLINE_ECHO_BYTES = 1000
# What one answer may repeat of its prompts: it is held in memory as a whole, 200 bytes a token with its likely ones.
MAX_ECHOED_TOKENS = 1 << 17
MAX_ECHOED_CHARS = 1 << 24


class CompletionPrompts(NamedTuple):
    """The prompts of one request, in order.

    Attributes:
        prompts: what the engine gets.
        echoes: how the choices of each show it.
    """

    prompts: list[TokenPrompt]
    echoes: list[PromptEcho]


async def completion_prompts(
    model: ServedModel, request: completion_pb2.CompletionRequest, choices: int
) -> CompletionPrompts:
    """Tokenize the prompts; long ones in a thread.

    Args:
        model: the model.
        request: the request.
        choices: of each prompt.

    Raises:
        ContextTooLong: a prompt has more tokens than the model takes.
        InvalidRequest: a token id that the model does not have, an echo too large, or a suffix that it cannot fill to.
    """
    is_placed = request.echo and request.HasField("logprobs")
    if request.ByteSize() <= (INLINE_ECHO_BYTES if is_placed else INLINE_PROMPT_CHARS):
        return _tokenize(model, request, choices)
    return await in_thread(_tokenize, model, request, choices)


def _tokenize(
    model: ServedModel, request: completion_pb2.CompletionRequest, choices: int
) -> CompletionPrompts:
    logprobs = request.HasField("logprobs")
    if request.suffix and request.echo and logprobs:
        raise InvalidRequest(
            "suffix is set together with echo and logprobs; the prompt's tokens then stand apart from its text: leave "
            "out one of the three",
            param="suffix",
        )
    result = CompletionPrompts([], [])
    for index, source in enumerate(request.prompts):
        name = f"prompt[{index}]" if len(request.prompts) > 1 else ""
        try:
            prompt = _prompt(model, source, request.suffix)
        except InvalidRequest as error:
            raise (error.about(name) if name else error) from None
        result.prompts.append(prompt)
        result.echoes.append(
            prompt_echo(
                model.builder.tokenizer,
                prompt,
                is_text=source.WhichOneof("kind") == "text",
                echo=request.echo,
                logprobs=logprobs,
                name=name,
            )
        )
    if request.echo:
        _check_echo(result, choices)
    return result


def _prompt(model: ServedModel, source: completion_pb2.CompletionPrompt, suffix: str) -> TokenPrompt:
    if source.WhichOneof("kind") == "text":
        prompt = model.builder.text(source.text, max_tokens=most_tokens(model.card))
    else:
        prompt = model.builder.ids(source.token_ids.ids)
    if suffix:
        return infill_prompt(model, prompt, suffix)
    prompt = never_empty(model.card, prompt)
    check_context(model.card, prompt.tokens)
    return prompt


def _check_echo(result: CompletionPrompts, choices: int) -> None:
    tokens = choices * sum(len(echo.ids) for echo in result.echoes)
    if tokens > MAX_ECHOED_TOKENS:
        raise InvalidRequest(
            f"echo with logprobs would return {tokens} tokens of prompts; at most {MAX_ECHOED_TOKENS} are allowed in one "
            "answer",
            param="echo",
        )
    characters = choices * sum(len(echo.text) for echo in result.echoes)
    if characters > MAX_ECHOED_CHARS:
        raise InvalidRequest(
            f"echo would return {characters} characters of prompts; at most {MAX_ECHOED_CHARS} are allowed in one answer",
            param="echo",
        )
