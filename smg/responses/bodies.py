"""The response object, in the two forms that S1 shows: in full, and as the events of a stream carry it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smg.responses.tools import shown_tools

if TYPE_CHECKING:
    from smg.responses.request import ResponseCall
    from smg.responses.shapes import Json

_ECHOED = (
    "instructions", "max_tool_calls", "previous_response_id", "prompt_cache_key", "prompt_cache_retention",
    "user", "safety_identifier",
)  # fmt: skip
# What a stream's last event shows beside the output, where it was set; S1's example names the rest "...".
_STREAMED = ("error", "incomplete_details", "usage", "instructions", "max_output_tokens", "max_tool_calls")
_ALWAYS = ("temperature", "parallel_tool_calls", "store", "tools", "metadata", "tool_choice")


class ResponseBody:
    """Makes the objects of one response.

    Attributes:
        id: begins with "resp_".
        created_at: Unix time in seconds.
        model: what is told as the model: as the caller named it, until its id is known.
    """

    def __init__(
        self, call: ResponseCall, response_id: str, created_at: int, *, is_background: bool = False
    ) -> None:
        self._is_background = is_background
        self.model = call.message.model
        self.id = response_id
        self.created_at = created_at
        self._call = call

    def begun(self, status: str = "in_progress") -> Json:
        """The object of the first event."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "background": self._is_background,
            "model": self.model,
            "output": [],
        }

    def running(self, status: str = "in_progress") -> Json:
        """The object of the second event."""
        return {"id": self.id, "object": "response", "status": status}

    def full(self, ended: Json, output: list[Json], completed_at: int | None) -> Json:
        """The whole object.

        Args:
            ended: status, error, incomplete_details and usage.
            output: the items.
            completed_at: Unix time in seconds; None while it runs.
        """
        call, message = self._call, self._call.message
        sampling = message.sampling
        echoed = {name: getattr(message, name) or None for name in _ECHOED}
        body: Json = {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": completed_at,
            "background": self._is_background,
            "status": ended["status"],
            "error": ended.get("error"),
            "incomplete_details": ended.get("incomplete_details"),
            "instructions": echoed["instructions"],
            "max_output_tokens": sampling.max_completion_tokens or None,
            "max_tool_calls": echoed["max_tool_calls"],
            "model": self.model,
            "output": output,
            "parallel_tool_calls": self._parallel,
            "previous_response_id": echoed["previous_response_id"],
            "prompt_cache_key": echoed["prompt_cache_key"],
            "prompt_cache_retention": echoed["prompt_cache_retention"],
            "reasoning": {
                "effort": call.effort or None,
                "summary": message.reasoning.summary or None,
            },
            "service_tier": message.service_tier or "default",
            "store": call.stores,
            "temperature": self._temperature,
            "text": self._text(),
            "tool_choice": self._tool_choice,
            "tools": shown_tools(call.tools),
            "top_logprobs": message.top_logprobs,
            "top_p": sampling.top_p if sampling.HasField("top_p") else 1.0,
            "truncation": message.truncation or "disabled",
            "usage": ended.get("usage"),
            "user": echoed["user"],
            "safety_identifier": echoed["safety_identifier"],
            "frequency_penalty": sampling.frequency_penalty,
            "presence_penalty": sampling.presence_penalty,
            "metadata": call.metadata,
        }
        if message.conversation:
            body["conversation"] = message.conversation
        return body

    def streamed(self, full: Json) -> Json:
        """The object of the last event, from the whole one."""
        body = {
            **self.begun(),
            "status": full["status"],
            "output": [streamed_item(i) for i in full["output"]],
        }
        body |= {name: full[name] for name in _STREAMED if full[name] is not None}
        body |= {name: full[name] for name in _ALWAYS}
        return body

    @property
    def _parallel(self) -> bool:
        message = self._call.message
        return message.parallel_tool_calls if message.HasField("parallel_tool_calls") else True

    @property
    def _temperature(self) -> float:
        sampling = self._call.message.sampling
        return sampling.temperature if sampling.HasField("temperature") else 1.0

    @property
    def _tool_choice(self) -> Any:
        return "auto" if self._call.tool_choice is None else self._call.tool_choice

    def _text(self) -> Json:
        text = self._call.text or {}
        return {
            "format": text.get("format") or {"type": "text"},
            "verbosity": text.get("verbosity") or "medium",
        }


def streamed_item(item: Json) -> Json:
    """An item as events show it."""
    kind = item["type"]
    if kind == "message":
        content = [
            {name: value for name, value in part.items() if name != "annotations"} for part in item["content"]
        ]
        return {**item, "content": content}
    if kind == "mcp_list_tools":
        return {**item, "status": "completed"}
    return item
