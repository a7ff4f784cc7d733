"""What a provider profile is: the rules, defaults and rewrites of one vendor's contract for chat requests.

A profile is a value without state. It sees a request before any other rule does, so it takes whatever is well formed
as protobuf and leaves what is no profile's business to the rules that follow. Source: the OpenAI-compatible API's
"Provider Profiles".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from smg.validation.rules import raise_faults, set_fields
from smg.validation.texts import read_object, shown
from smg_proto.chat.v1 import chat_pb2

if TYPE_CHECKING:
    import re
    from collections.abc import Collection

    from smg.validation.texts import Fault
    from smg_proto.chat.v1 import options_pb2

# Texts that the API prints; clients compare them.
ADAPTIVE_FAULT = "__all__: invalid thinking.type: only enabled or disabled is allowed for this model"
MAX_FAULTS = 8
_KWARGS = "chat_template_kwargs"


class Adapted(NamedTuple):
    """A request under its profile.

    Attributes:
        request: what is answered.
        prompt: what the prompt is made of: the same, but for tools that its own messages show.
    """

    request: chat_pb2.ChatRequest
    prompt: chat_pb2.ChatRequest


class StreamUsage(NamedTuple):
    """Where a stream tells the token counts.

    Attributes:
        is_told: in a last chunk without choices.
        is_running: in every chunk, so far.
        with_finish: in the chunk that ends the last choice, and in no chunk of its own. With is_told, the chunks
            before it have a place for it that is null.
    """

    is_told: bool = False
    is_running: bool = False
    with_finish: bool = False


class Profile:
    """The OpenAI baseline, and what vendors' profiles change of it.

    Attributes:
        name: as docs and logs name it.
        pattern: what a segment of the model's name, in lower case, begins with; None matches nothing.
        scans_calls: answers are searched for calls though the request has no tools.
        bounds_output: a limit of output tokens beyond the context is refused.
        tells_usage: streams tell the token counts unless the request says otherwise.
        usage_with_finish: streams tell them as StreamUsage.with_finish has it.
        shows_message_tools: messages may declare tools, and the chat template shows them; where not, they are dropped.
    """

    name: ClassVar[str] = "openai"
    pattern: ClassVar[re.Pattern[str] | None] = None
    scans_calls: ClassVar[bool] = False
    bounds_output: ClassVar[bool] = False
    tells_usage: ClassVar[bool] = False
    usage_with_finish: ClassVar[bool] = False
    shows_message_tools: ClassVar[bool] = False

    def adapt(self, request: chat_pb2.ChatRequest) -> Adapted:
        """Check a request against the vendor's rules, and give it the vendor's defaults. The caller's own stays as it is.

        Raises:
            InvalidRequest: one or more rules are broken.
        """
        raise_faults(self.faults(request)[:MAX_FAULTS])
        result = chat_pb2.ChatRequest()
        result.CopyFrom(request)
        self.rewrite(result)
        return Adapted(result, result)

    def faults(self, request: chat_pb2.ChatRequest) -> list[Fault]:  # noqa: ARG002 - here no rule is broken
        """What breaks the vendor's rules."""
        return []

    def rewrite(self, request: chat_pb2.ChatRequest) -> None:
        """Fill in and change what the vendor's contract says. Called for requests without faults."""

    def stream_usage(self, options: options_pb2.StreamOptions) -> StreamUsage:
        """Where a stream with these options tells the token counts. Running counts need include_usage as well."""
        told = options.include_usage if options.HasField("include_usage") else self.tells_usage
        if self.usage_with_finish:
            return StreamUsage(told, with_finish=True)
        return StreamUsage(told, told and options.continuous_usage_stats)


class Baseline(Profile):
    """Everything that no vendor's pattern matches. Requests pass as they are."""

    def adapt(self, request: chat_pb2.ChatRequest) -> Adapted:
        """Nothing is checked or changed."""
        return Adapted(request, request)


def adaptive_faults(request: chat_pb2.ChatRequest) -> list[Fault]:
    """thinking_type_not_supported: these models think or do not."""
    return [("thinking.type", ADAPTIVE_FAULT)] if request.thinking.type == "adaptive" else []


def effort_faults(request: chat_pb2.ChatRequest, allowed: Collection[str], more: str = "") -> list[Fault]:
    """reasoning_effort_not_allowed: both spellings count, the shadowed one too.

    Args:
        request: any.
        allowed: the levels.
        more: what else is allowed, in words; it is not checked here.
    """
    given: list[Fault] = []
    if request.HasField("reasoning_effort"):
        given.append(("reasoning_effort", request.reasoning_effort))
    if request.thinking.HasField("effort"):
        given.append(("thinking.effort", request.thinking.effort))
    levels = ", ".join(allowed) + more
    return [
        (name, f"{name} is {shown(effort)}; allowed for this model are {levels}")
        for name, effort in given
        if effort not in allowed
    ]


def template_variables(request: chat_pb2.ChatRequest) -> dict[str, Any]:
    """The request's own template variables; empty where they are no JSON object, which is found fault with elsewhere."""
    text = request.chat_template_kwargs_json
    return read_object(text, _KWARGS)[0] if text else {}


def set_template_variable(request: chat_pb2.ChatRequest, name: str, value: Any) -> None:
    """Add a template variable."""
    if request.chat_template_kwargs_json:
        variables, faults = read_object(request.chat_template_kwargs_json, _KWARGS)
        if faults:
            return
        value = variables | {name: value}
    else:
        value = {name: value}
    request.chat_template_kwargs_json = json.dumps(value, ensure_ascii=False)


def fill_sampling(request: chat_pb2.ChatRequest, **values: float) -> None:
    """Set the sampling options that the request leaves open."""
    given = set_fields(request.sampling)
    for name, value in values.items():
        if name not in given:
            setattr(request.sampling, name, value)
