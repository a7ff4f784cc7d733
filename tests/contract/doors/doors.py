"""The doors that a chat request may come through: HTTP and gRPC, whole and streamed, with one form of answer."""

import json
from dataclasses import dataclass, field

import grpc
from grpc_status import rpc_status
from pydantic_core import from_json

from gateway.openai.chat_request import chat_request
from gateway.openai.shapes import CHAT
from smg_proto.chat.v1 import chat_pb2
from smg_proto.errors.v1 import errors_pb2


@dataclass
class Said:
    """One choice. `is_whole_stream` tells that role came first and once."""

    content: str = ""
    reasoning: str = ""
    calls: list = field(default_factory=list)  # [id, name, arguments]
    finish: str | None = None
    matched_stop: str | None = None  # an id that ended it is not told by every door
    logprobs: list = field(default_factory=list)  # (token, logprob, bytes)

    def same_as(self, other):
        """Equal but for ids, which are drawn anew for each answer."""
        mine, theirs = dict(vars(self)), dict(vars(other))
        mine["calls"] = [call[1:] for call in mine["calls"]]
        theirs["calls"] = [call[1:] for call in theirs["calls"]]
        return mine == theirs


@dataclass
class Outcome:
    """An answer, or a refusal (then `status` is not 200)."""

    status: int = 200
    code: str = ""
    message: str = ""
    choices: dict = field(default_factory=dict)
    usage: dict = field(default_factory=dict)

    def choice(self, index):
        return self.choices.setdefault(index, Said())


def _usage(usage):
    prompt, completion = usage["prompt_tokens_details"], usage["completion_tokens_details"]
    return {
        "prompt": usage["prompt_tokens"],
        "completion": usage["completion_tokens"],
        "cached": prompt["cached_tokens"],
        "reasoning": completion["reasoning_tokens"],
    }


def _proto_usage(usage):
    return {
        "prompt": usage.prompt_tokens,
        "completion": usage.completion_tokens,
        "cached": usage.cached_tokens,
        "reasoning": usage.reasoning_tokens,
    }


def _http_error(response):
    error = response.json()["error"]
    return Outcome(response.status_code, str(error["code"]), error["message"])


def _json_entries(logprobs):
    return [
        (each["token"], each["logprob"], bytes(each["bytes"])) for each in (logprobs or {}).get("content", ())
    ]


def _proto_entries(logprobs):
    return [(each.token, each.logprob, each.bytes) for each in logprobs.content]


def _matched(choice):
    return choice.matched_stop.text or None


def _text_or_none(value):
    return value if isinstance(value, str) else None


def _proto_request(body):
    data = from_json(json.dumps(body))
    return chat_request(CHAT.validate_python(data), data)


async def http_whole(gateway, body):
    response = await gateway.http.post("/v1/chat/completions", json=body)
    if response.status_code != 200:
        return _http_error(response)
    answer = response.json()
    outcome = Outcome(usage=_usage(answer["usage"]))
    for choice in answer["choices"]:
        message = choice["message"]
        calls = [
            [call["id"], call["function"]["name"], call["function"]["arguments"]]
            for call in message.get("tool_calls", ())
        ]
        assert not calls or message["content"] != "", "beside calls, no text is null"
        outcome.choices[choice["index"]] = Said(
            message["content"] or "",
            message["reasoning_content"] or "",
            calls,
            choice["finish_reason"],
            _text_or_none(choice.get("matched_stop")),
            _json_entries(choice["logprobs"]),
        )
    return outcome


async def http_stream(gateway, body):
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    outcome = Outcome()
    async with gateway.http.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            await response.aread()
            return _http_error(response)
        lines = [line async for line in response.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert chunks[-1]["choices"] == []
    outcome.usage = _usage(chunks.pop()["usage"])
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    for chunk in chunks:
        assert not chunk.get("usage"), "only the last chunk counts"
        (choice,) = chunk["choices"]
        _take_chunk(outcome.choices, choice)
    return outcome


def _take_chunk(choices, choice):
    delta = choice["delta"]
    index = choice["index"]
    assert ("role" in delta) == (index not in choices), "the role comes first, and once"
    said = choices.setdefault(index, Said())
    assert said.finish is None, "nothing comes after the end"
    kinds = [name for name in ("content", "reasoning_content", "tool_calls") if delta.get(name)]
    assert len(kinds) <= 1, "one delta has one kind"
    if "role" not in delta:
        assert delta.get("content") != "", "no empty deltas"
    said.content += delta.get("content") or ""
    said.reasoning += delta.get("reasoning_content") or ""
    for call in delta.get("tool_calls", ()):
        _take_call(said, call["index"], call.get("id"), call["function"])
    said.logprobs += _json_entries(choice["logprobs"])
    said.finish = choice["finish_reason"]
    said.matched_stop = _text_or_none(choice.get("matched_stop"))


def _take_call(said, index, call_id, function):
    if call_id:
        assert index == len(said.calls), "calls are numbered as they come"
        said.calls.append([call_id, function["name"], ""])
    said.calls[index][2] += function.get("arguments") or ""


async def _refusal(call):
    try:
        return await call, None
    except grpc.aio.AioRpcError as error:
        status = rpc_status.from_call(error)
        detail = errors_pb2.ApiError()
        assert status is not None
        assert status.details[0].Unpack(detail)
        return None, Outcome(detail.http_status, detail.code, error.details())


async def grpc_whole(gateway, body):
    request = chat_pb2.CreateChatCompletionRequest(chat=_proto_request(body))
    response, refusal = await _refusal(gateway.chats.CreateChatCompletion(request))
    if refusal:
        return refusal
    outcome = Outcome(usage=_proto_usage(response.completion.usage))
    for choice in response.completion.choices:
        message = choice.message
        outcome.choices[choice.index] = Said(
            message.content,
            message.reasoning_content,
            [[call.id, call.name, call.arguments] for call in message.tool_calls],
            choice.finish_reason,
            _matched(choice),
            _proto_entries(choice.logprobs),
        )
    return outcome


async def grpc_stream(gateway, body):
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    request = chat_pb2.StreamChatCompletionRequest(chat=_proto_request(body))

    async def read():
        return [response.chunk async for response in gateway.chats.StreamChatCompletion(request)]

    chunks, refusal = await _refusal(read())
    if refusal:
        return refusal
    outcome = Outcome(usage=_proto_usage(chunks.pop().usage))
    for chunk in chunks:
        for choice in chunk.choices:
            delta = choice.delta
            assert delta.HasField("role") == (choice.index not in outcome.choices)
            said = outcome.choice(choice.index)
            said.content += delta.content
            said.reasoning += delta.reasoning_content
            for call in delta.tool_calls:
                function = {"name": call.name, "arguments": call.arguments}
                _take_call(said, call.index, call.id, function)
            said.logprobs += _proto_entries(choice.logprobs)
            if choice.HasField("finish_reason"):
                said.finish = choice.finish_reason
                said.matched_stop = _matched(choice)
    return outcome


DOORS = {
    "http": http_whole,
    "http stream": http_stream,
    "grpc": grpc_whole,
    "grpc stream": grpc_stream,
}
