"""CreateCompletion and StreamCompletion say what POST /v1/completions says."""

import pytest

from smg_proto.chat.v1 import chat_pb2
from tests.integration.running_router import outcome, running_router


def create(**fields):
    return chat_pb2.CreateCompletionRequest(completion={"model": "m", **fields})


def stream(**fields):
    return chat_pb2.StreamCompletionRequest(completion={"model": "m", **fields})


def prompt(text):
    return {"text": text}


def ids(*values):
    return {"token_ids": {"ids": values}}


async def joined(gateway, **fields):
    """Text, entries and finish reason by choice."""
    choices = {}
    async for response in gateway.chats.StreamCompletion(stream(**fields)):
        for part in response.chunk.choices:
            text, entries, _ = choices.get(part.index, ("", [], ""))
            choices[part.index] = (
                text + part.text,
                [*entries, *part.logprobs.content],
                part.finish_reason,
            )
    return choices


CASES = [
    {"prompts": [prompt("[[say: hi]]")]},
    {"prompts": [prompt("[[say: Grüße 🙂]]")], "echo": True, "logprobs": 2},
    {"prompts": [prompt("[[say:a]]"), ids(5, 6, 7)], "n": 2, "echo": True, "logprobs": 1},
    {"prompts": [prompt("[[say:a STOP b]]")], "sampling": {"stop": ["STOP"]}, "echo": True, "logprobs": 1},
    {"prompts": [prompt("[[say:a]]")], "sampling": {"max_tokens": 0}, "echo": True, "logprobs": 1},
    {"prompts": [prompt("word " * 1500)], "sampling": {"max_tokens": 1}, "echo": True, "logprobs": 5},
]
NAMES = ["plain", "echo", "two prompts", "stop", "no tokens", "long"]


@pytest.mark.parametrize("fields", CASES, ids=NAMES)
async def test_a_stream_says_what_the_whole_answer_says(echo_worker, fields):
    async with running_router(await echo_worker()) as gateway:
        whole = (await gateway.chats.CreateCompletion(create(**fields))).completion
        pieces = await joined(gateway, **fields)
    assert pieces == {
        choice.index: (choice.text, list(choice.logprobs.content), choice.finish_reason)
        for choice in whole.choices
    }


@pytest.mark.parametrize("fields", CASES, ids=NAMES)
async def test_an_answer_says_over_grpc_what_it_says_over_http(echo_worker, fields):
    body = {name: value for name, value in fields.items() if name not in ("prompts", "sampling")}
    body |= fields.get("sampling", {})
    async with running_router(await echo_worker()) as gateway:
        whole = (await gateway.chats.CreateCompletion(create(**fields))).completion
        # JSON has arrays of texts or of ids, not both in one.
        choices = []
        for each in fields["prompts"]:
            given = each["text"] if "text" in each else list(each["token_ids"]["ids"])
            answer = await gateway.http.post("/v1/completions", json={"model": "m", "prompt": given, **body})
            choices += answer.json()["choices"]
    assert [choice.text for choice in whole.choices] == [choice["text"] for choice in choices]
    for choice, over_http in zip(whole.choices, choices, strict=True):
        assert choice.finish_reason == over_http["finish_reason"]
        assert choice.HasField("logprobs") == ("logprobs" in over_http)
        told = over_http.get("logprobs", {"text_offset": [], "token_logprobs": []})
        entries = choice.logprobs.content
        assert [entry.text_offset for entry in entries] == told["text_offset"]
        assert [entry.logprob if entry.HasField("logprob") else None for entry in entries] == told[
            "token_logprobs"
        ]


async def test_the_likeliest_candidates_come_and_all_are_counted(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        request = {"prompts": [prompt("[[say:hi there]]")]}
        every = (await gateway.chats.CreateCompletion(create(n=3, logprobs=0, **request))).completion
        best = (await gateway.chats.CreateCompletion(create(best_of=3, **request))).completion
    means = [
        sum(entry.logprob for entry in choice.logprobs.content) / len(choice.logprobs.content)
        for choice in every.choices
    ]
    assert [choice.text for choice in best.choices] == [every.choices[means.index(max(means))].text]
    assert not best.choices[0].HasField("logprobs")
    assert best.usage.completion_tokens == every.usage.completion_tokens


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"prompts": [prompt("a")], "suffix": "b"}, "suffix is set, and the model m cannot fill in"),
        ({"prompts": [prompt("a"), ids(10**6)]}, "prompt[1]: token id 1000000"),
        ({"prompts": [prompt("ok"), prompt("[[error:INVALID_ARGUMENT:no way]]")]}, "prompt[1]: no way"),
        ({"prompts": [prompt("ok"), prompt("word " * 20_000)]}, "prompt[1]: "),
    ],
    ids=["no infill", "unknown id", "engine", "context"],
)
async def test_what_cannot_be_done_is_refused_by_name(echo_worker, fields, text):
    async with running_router(await echo_worker()) as gateway:
        for call in (
            gateway.chats.CreateCompletion(create(**fields)),
            gateway.chats.StreamCompletion(stream(**fields)),
        ):
            code, message, _ = await outcome(call)
            assert code == "INVALID_ARGUMENT"
            assert message.startswith(text)


async def test_chunks_never_carry_running_usage(echo_worker):
    options = {"include_usage": True, "continuous_usage_stats": True}
    request = stream(prompts=[prompt("[[say:hi there]]")], stream_options=options)
    async with running_router(await echo_worker()) as gateway:
        chunks = [response.chunk async for response in gateway.chats.StreamCompletion(request)]
    assert [chunk.HasField("usage") for chunk in chunks] == [*[False] * (len(chunks) - 1), True]


async def test_several_long_prompts_are_streamed_at_the_pace_of_their_client(echo_worker):
    text = "word " * 3000
    fields = {"prompts": [prompt(text)] * 3, "n": 2, "echo": True, "logprobs": 5}
    async with running_router(await echo_worker(), slow_reader_bytes=50_000) as gateway:
        pieces = await joined(gateway, sampling={"max_tokens": 1}, **fields)
        builder = (await gateway.router.catalog.resolve("m")).builder
    assert sorted(pieces) == list(range(6))
    assert {len(entries) for _, entries, _ in pieces.values()} == {builder.text(text).tokens + 1}
