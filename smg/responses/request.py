"""Reads a request for a response: its JSON parts, and every rule that needs neither model nor history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from smg.errors import InvalidRequest
from smg.responses.input_items import checked_input, text_item
from smg.responses.shapes import Json, as_object, json_of, kind_of, one_of
from smg.responses.text_format import check_hosted, check_text, is_hosted_by_openai
from smg.responses.tool_choice import checked_choice
from smg.responses.tools import checked_tools
from smg.validation.rules import SAMPLING, Range, range_faults, set_fields
from smg.validation.sampling import rid_faults, sampling_faults
from smg.validation.texts import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smg.validation.texts import Fault
    from smg_proto.responses.v1 import responses_pb2

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SUMMARIES = ("auto", "concise", "detailed")
TIERS = ("auto", "default", "flex", "scale", "priority")
TRUNCATIONS = ("auto", "disabled")
INCLUDABLE = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)
LOGPROBS, ENCRYPTED = "message.output_text.logprobs", "reasoning.encrypted_content"
MAX_PAIRS, MAX_KEY_CHARS, MAX_VALUE_CHARS = 16, 64, 512
RANGES = {
    **SAMPLING,
    "max_completion_tokens": Range(16, 2**31 - 1),
}
OWN_RANGES = {
    "max_tool_calls": Range(1, 2**31 - 1),
    "top_logprobs": Range(0, 20),
}
_NAMES = {"max_completion_tokens": "max_output_tokens"}
CONVERSATION_PREFIX = "conv_"


@dataclass(frozen=True, slots=True)
class ResponseCall:
    """A request whose rules have been checked.

    Attributes:
        message: as it came.
        items: of the input, each with its type.
        tools: as they were declared.
        tool_choice: as it was sent; None for auto.
        text: form of the text; None for plain.
        metadata: as it was sent.
    """

    message: responses_pb2.ResponseRequest
    items: list[Json]
    tools: list[Json]
    tool_choice: Any
    text: Json | None
    metadata: Json

    @property
    def stores(self) -> bool:
        """The response is to be kept."""
        return self.message.store if self.message.HasField("store") else True

    @property
    def with_logprobs(self) -> bool:
        """Log-probabilities of the text are shown."""
        return LOGPROBS in self.message.include

    @property
    def with_encrypted(self) -> bool:
        """Reasoning is shown as a blob as well."""
        return ENCRYPTED in self.message.include

    @property
    def effort(self) -> str:
        """The reasoning effort; empty where nothing is said."""
        if not self.message.HasField("reasoning"):
            return ""
        return self.message.reasoning.effort or "medium"


def read_request(message: responses_pb2.ResponseRequest) -> ResponseCall:
    """Read and check a request.

    Raises:
        MalformedRequest: a JSON part has a wrong shape, or a word is none of its list.
        InvalidRequest: a rule is broken; the message begins with the field.
    """
    _check_words(message)
    tools = _list(message.tools_json, "tools")
    choice: Any = json_of(message.tool_choice_json, "tool_choice") if message.tool_choice_json else None
    text: Any = json_of(message.text_json, "text") if message.text_json else None
    metadata: Any = json_of(message.metadata_json, "metadata") if message.metadata_json else {}
    items = _input(message)
    call = ResponseCall(
        message,
        items,
        checked_tools(tools),
        choice,
        as_object(text, "text") if text is not None else None,
        as_object(metadata, "metadata"),
    )
    if call.text is not None:
        check_text(call.text)
    checked_choice(choice, call.tools)
    _check_rules(call)
    return call


def _list(text: str, name: str) -> list[Any]:
    if not text:
        return []
    value: Any = json_of(text, name)
    if not isinstance(value, list):
        raise InvalidRequest(f"{name}: {name} is {kind_of(value)}; it must be an array", param=name)
    return cast("list[Any]", value)


def _input(message: responses_pb2.ResponseRequest) -> list[Json]:
    if message.WhichOneof("input") == "input_items_json":
        items = checked_input(_list(message.input_items_json, "input"))
    else:
        items = [text_item(message.input_text)] if message.input_text else []
    if not items:
        raise InvalidRequest("input: the input is empty; it needs a text or at least one item", param="input")
    return items


def _check_words(message: responses_pb2.ResponseRequest) -> None:
    if message.HasField("service_tier"):
        one_of(message.service_tier, TIERS, "service_tier")
    if message.HasField("truncation"):
        one_of(message.truncation, TRUNCATIONS, "truncation")
    if message.reasoning.HasField("effort"):
        one_of(message.reasoning.effort, EFFORTS, "reasoning.effort")
    if message.reasoning.HasField("summary"):
        one_of(message.reasoning.summary, SUMMARIES, "reasoning.summary")
    for index, value in enumerate(message.include):
        one_of(value, INCLUDABLE, f"include[{index}]")


def _check_rules(call: ResponseCall) -> None:
    message = call.message
    if message.previous_response_id and message.conversation:
        raise InvalidRequest(
            "__all__: Mutually exclusive parameters. Ensure you are only providing one of: "
            "'previous_response_id' or 'conversation'.",
            param="previous_response_id",
        )
    if message.conversation and not message.conversation.startswith(CONVERSATION_PREFIX):
        raise InvalidRequest(
            f"conversation: Invalid 'conversation': {message.conversation[:80]!r}. "
            f"Expected an ID that begins with '{CONVERSATION_PREFIX}'.",
            param="conversation",
        )
    faults = range_faults(set_fields(message), OWN_RANGES)
    sampling = set_fields(message.sampling)
    faults += range_faults(sampling, RANGES)
    faults += sampling_faults(sampling)
    if message.request_id:
        faults += [("request_id", sentence) for _, sentence in rid_faults(message.request_id)]
    faults += _metadata_faults(call.metadata)
    if faults:
        name = _NAMES.get(faults[0][0], faults[0][0])
        told = "; ".join(f"{_NAMES.get(field, field)}: {_renamed(sentence)}" for field, sentence in faults)
        raise InvalidRequest(told, param=name)
    if is_hosted_by_openai(message.model):
        check_hosted(call.text, call.tools, _said(call))


def _renamed(sentence: str) -> str:
    for ours, theirs in _NAMES.items():
        sentence = sentence.replace(ours, theirs)
    return sentence


def _metadata_faults(metadata: Json) -> list[Fault]:
    if len(metadata) > MAX_PAIRS:
        return [("metadata", f"metadata has {len(metadata)} pairs; at most {MAX_PAIRS} are allowed")]
    for key, value in metadata.items():
        if len(key) > MAX_KEY_CHARS:
            sentence = f"metadata has the key {shown(key)} of {len(key)} characters"
            return [("metadata", f"{sentence}; at most {MAX_KEY_CHARS} are allowed")]
        if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
            sentence = f"metadata[{shown(key)}] has {len(value)} characters"
            return [("metadata", f"{sentence}; at most {MAX_VALUE_CHARS} are allowed")]
    return []


def _said(call: ResponseCall) -> Iterator[str]:
    yield call.message.instructions
    for item in call.items:
        content: Any = item.get("content") or item.get("output") or ()
        if isinstance(content, str):
            yield content
        else:
            for part in content:
                text: Any = part.get("text")
                if isinstance(text, str):
                    yield text
