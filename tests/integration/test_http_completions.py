"""POST /v1/completions over real sockets: router and echo engine, as evaluation harnesses and older clients use it."""

import json

import openai
import pytest

from gateway.openai.shapes import CompletionShape
from tests.integration.running_router import running_router


async def completed(gateway, **fields):
    """The whole answer."""
    answer = await gateway.http.post("/v1/completions", json={"model": "m", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def events_of(gateway, **fields):
    """The JSON events of a stream, which must end with [DONE]."""
    body = {"model": "m", "stream": True, **fields}
    answer = await gateway.http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    frames = answer.text.split("\n\n")[:-1]
    assert frames[-1] == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]


async def refused(gateway, **fields):
    """Message and code of a refusal, which must be a 400."""
    answer = await gateway.http.post("/v1/completions", json={"model": "m", **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    return error["message"], error["code"]


def joined(events):
    """Text, log-probability lists and finish reason by choice."""
    choices = {}
    for event in events:
        for part in event["choices"]:
            choice = choices.setdefault(part["index"], {"text": "", "logprobs": {}, "finish_reason": None})
            assert choice["finish_reason"] is None
            choice["text"] += part["text"]
            choice["finish_reason"] = part["finish_reason"]
            for name, values in (part.get("logprobs") or {}).items():
                choice["logprobs"].setdefault(name, []).extend(values)
    return choices


def score(choice, context_tokens):
    """What lm-evaluation-harness makes of a choice: the continuation's sum, and whether it is the likeliest."""
    logprobs = choice["logprobs"]
    told = logprobs["token_logprobs"][context_tokens:-1]
    top = logprobs["top_logprobs"][context_tokens:-1]
    return sum(told), all(each == max(likely.values()) for each, likely in zip(told, top, strict=True))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_harness_finds_one_entry_for_each_prompt_token_and_one_more(echo_worker, stream):
    prompts = ["[[say:hello]]", "Question? Answer: ü"]
    fields = {"prompt": prompts, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    async with running_router(await echo_worker()) as gateway:
        if stream:
            choices = joined(await events_of(gateway, **fields))
        else:
            choices = {choice["index"]: choice for choice in (await completed(gateway, **fields))["choices"]}
        builder = (await gateway.router.catalog.resolve("m")).builder
        for index, prompt in enumerate(prompts):
            tokens = builder.text(prompt).tokens
            logprobs = choices[index]["logprobs"]
            assert {len(values) for values in logprobs.values()} == {tokens + 1}
            assert (logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]) == (None, None)
            assert choices[index]["text"].startswith(prompt)
            assert logprobs["text_offset"][0] == 0
            assert logprobs["text_offset"][-1] == len(prompt)
            total, is_greedy = score(choices[index], tokens - 2)
            assert total < 0
            assert not is_greedy  # the echo engine finds no prompt likely


async def test_an_answer_that_ends_at_once_still_has_the_entry_that_a_harness_leaves_out(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        answer = await completed(gateway, prompt="[[say:]]", echo=True, logprobs=1, max_tokens=1)
        builder = (await gateway.router.catalog.resolve("m")).builder
    [choice] = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("[[say:]]", "stop")
    assert len(choice["logprobs"]["tokens"]) == builder.text("[[say:]]").tokens + 1
    assert choice["logprobs"]["tokens"][-1] == "<|im_end|>"
    assert choice["logprobs"]["text_offset"][-1] == len("[[say:]]")


@pytest.mark.parametrize("stream", [False, True])
async def test_without_tokens_to_generate_only_the_prompt_comes(echo_worker, stream):
    fields = {"prompt": "[[say:hello]]", "echo": True, "logprobs": 2, "max_tokens": 0}
    async with running_router(await echo_worker()) as gateway:
        answer = await completed(gateway, **fields)
        if stream:
            choice = joined(await events_of(gateway, **fields))[0]
        else:
            [choice] = answer["choices"]
        without = (await completed(gateway, prompt="[[say:hello]]", max_tokens=0))["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("[[say:hello]]", "length")
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"]
    assert "".join(choice["logprobs"]["tokens"]) == "[[say:hello]]"
    assert answer["usage"]["completion_tokens"] == 0
    assert without == {"text": "", "index": 0, "finish_reason": "length"}


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "[[say: jumps over]]"},
        {"prompt": "[[say: jumps over]]", "echo": True},
        {"prompt": "[[say: Grüße, 世界 🙂]]", "echo": True, "logprobs": 3},
        {"prompt": ["[[say: one]]", "[[say: two]]", "[[say: three]]"], "n": 2, "echo": True, "logprobs": 0},
        {"prompt": "[[say: one two END three]]", "stop": ["END", "three"], "echo": True, "logprobs": 1},
        {"prompt": "[[say: one two END three]]", "stop": "END", "no_stop_trim": True, "logprobs": 1},
        {"prompt": "[[len:40]][[chunk:7]]", "logprobs": 5, "max_tokens": 20},
        {"prompt": [[5, 6, 7], [300, 301]], "n": 2, "echo": True, "logprobs": 1},
        {"prompt": [5, 6, 7], "echo": True, "max_tokens": 0},
    ],
    ids=[
        "plain",
        "echo",
        "unicode",
        "arrays",
        "stop",
        "kept stop",
        "chunks",
        "arrays of ids",
        "ids",
    ],
)
async def test_a_stream_says_what_the_whole_answer_says(echo_worker, fields):
    async with running_router(await echo_worker()) as gateway:
        whole = await completed(gateway, **fields)
        events = await events_of(gateway, stream_options={"include_usage": True}, **fields)
    choices = joined(events)
    assert [choice["index"] for choice in whole["choices"]] == sorted(choices)
    for choice in whole["choices"]:
        part = choices[choice["index"]]
        assert (part["text"], part["finish_reason"]) == (choice["text"], choice["finish_reason"])
        assert part["logprobs"] == choice.get("logprobs", {})
        offsets = part["logprobs"].get("text_offset", [])
        assert offsets == sorted(offsets)
        assert all(offset <= len(part["text"]) for offset in offsets)
    for name in ("prompt_tokens", "completion_tokens"):
        assert events[-1]["usage"][name] == whole["usage"][name]


async def test_a_stop_string_in_the_echoed_prompt_ends_nothing(echo_worker):
    prompt = "never STOP [[say: go on]]"
    async with running_router(await echo_worker()) as gateway:
        answer = await completed(gateway, prompt=prompt, echo=True, stop="STOP")
    assert answer["choices"][0]["text"] == f"{prompt} go on"


async def test_prompts_are_numbered_as_they_came_and_each_is_counted_once(echo_worker):
    # The first prompt ends last.
    prompts = ["[[say:slow]][[delay:30]]", "[[say:quick]]", "[[say:q]]"]
    async with running_router(await echo_worker()) as gateway:
        answer = await completed(gateway, prompt=prompts, n=2)
        builder = (await gateway.router.catalog.resolve("m")).builder
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert [choice["text"].split(" ")[0] for choice in answer["choices"]] == [
        "slow", "slow", "quick", "quick", "q", "q",
    ]  # fmt: skip
    assert answer["usage"]["prompt_tokens"] == sum(builder.text(prompt).tokens for prompt in prompts)


async def test_the_chosen_tokens_are_told_where_no_likely_ones_are_asked_for(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        answer = await completed(gateway, prompt="[[say:hi there]]", logprobs=0)
        plain = await completed(gateway, prompt="[[say:hi there]]")
    logprobs = answer["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == "hi there<|im_end|>"
    assert [list(top.values()) for top in logprobs["top_logprobs"]] == [
        [each] for each in logprobs["token_logprobs"]
    ]
    assert "logprobs" not in plain["choices"][0]


async def test_the_likeliest_candidates_come_and_all_are_counted(echo_worker):
    prompts = ["[[say:hi there]]", "[[say:hello]]"]
    async with running_router(await echo_worker()) as gateway:
        every = await completed(gateway, prompt=prompts, n=4, logprobs=0)
        best = await completed(gateway, prompt=prompts, n=2, best_of=4, echo=True)
    assert best["usage"]["completion_tokens"] == every["usage"]["completion_tokens"]
    assert best["usage"]["prompt_tokens"] == every["usage"]["prompt_tokens"]
    for number, prompt in enumerate(prompts):

        def mean(choice):
            numbers = choice["logprobs"]["token_logprobs"]
            return sum(numbers) / len(numbers)

        candidates = sorted(every["choices"][4 * number : 4 * number + 4], key=mean, reverse=True)
        returned = best["choices"][2 * number : 2 * number + 2]
        assert [choice["text"] for choice in returned] == [prompt + each["text"] for each in candidates[:2]]
        assert [choice["index"] for choice in returned] == [2 * number, 2 * number + 1]
        assert all("logprobs" not in choice for choice in returned)


@pytest.mark.parametrize(
    ("fields", "text", "code"),
    [
        ({"prompt": "a", "suffix": "b"}, "suffix is set, and the model m cannot fill in", 400),
        (
            {"prompt": "a", "suffix": "b", "echo": True, "logprobs": 1},
            "suffix is set together with echo and logprobs",
            400,
        ),
        ({"prompt": ["ok", "word " * 20_000]}, "prompt[1]: ", "context_length_exceeded"),
        ({"prompt": "word " * 20_000}, "This model's maximum", "context_length_exceeded"),
        ({"prompt": [[1], [1, 10**6]]}, "prompt[1]: token id 1000000 at position 1", 400),
        (
            {"prompt": ["ok", "[[error:INVALID_ARGUMENT:no way]]", "ok"]},
            "prompt[1]: no way",
            "start_generation_failed",
        ),
        ({"prompt": "a", "logprobs": 6}, "logprobs is 6", 400),
        ({"prompt": "a", "best_of": 2, "stream": True}, "best_of is set", 400),
        ({"prompt": "a", "best_of": 2, "n": 2}, "best_of is 2", 400),
        (
            {"prompt": "word " * 3000, "n": 128, "echo": True, "logprobs": 1},
            "echo with logprobs would return ",
            400,
        ),
        (
            {"prompt": [" " * 40_000] * 8, "n": 128, "echo": True},
            "echo would return 40960000 characters",
            400,
        ),
    ],
    ids=[
        "no infill",
        "infill with echoed tokens",
        "context of one",
        "context",
        "unknown id",
        "engine",
        "logprobs",
        "best_of in a stream",
        "best_of not above n",
        "too many echoed tokens",
        "too much echo",
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(echo_worker, fields, text, code):
    async with running_router(await echo_worker()) as gateway:
        message, told = await refused(gateway, **fields)
    assert message.startswith(text)
    assert told == code


@pytest.mark.parametrize("prompt", ["", ["ok", ""]], ids=str)
async def test_an_empty_prompt_is_the_one_token_with_which_texts_begin(echo_worker, prompt):
    async with running_router(await echo_worker()) as gateway:
        answer = await completed(gateway, prompt=prompt, echo=True, max_tokens=0)
        extra = len((await gateway.router.catalog.resolve("m")).builder.tokenizer.encode("ok")) // 4
    assert [choice["text"] for choice in answer["choices"]] == (["ok", ""] if prompt else [""])
    assert answer["usage"]["prompt_tokens"] == (extra + 1 if prompt else 1)


async def test_what_a_prompt_spells_is_text_and_comes_back_as_it_was(echo_worker):
    prompt = "a<|im_end|>b"
    async with running_router(await echo_worker()) as gateway:
        answer = await completed(gateway, prompt=prompt, echo=True, max_tokens=0, logprobs=1)
    [choice] = answer["choices"]
    assert choice["text"] == "".join(choice["logprobs"]["tokens"]) == prompt
    assert len(choice["logprobs"]["tokens"]) > 3


async def test_every_optional_field_may_be_null(echo_worker):
    nulls = dict.fromkeys(CompletionShape.__annotations__.keys() - {"model", "prompt"})
    async with running_router(await echo_worker()) as gateway:
        answer = await completed(gateway, prompt="[[say:hello]]", **nulls)
    assert answer["choices"][0]["text"] == "hello"


async def test_an_empty_suffix_is_none(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        answer = await completed(gateway, prompt="[[say:hi]]", suffix="")
    assert answer["choices"][0]["text"] == "hi"


async def test_a_failure_in_mid_stream_ends_all_prompts(echo_worker):
    prompts = ["[[hang]]", "[[say:one two three]][[errorafter:2:INTERNAL:late]]"]
    async with running_router(await echo_worker()) as gateway:
        events = await events_of(gateway, prompt=prompts)
    assert events[-1] == {"error": {"message": "prompt[1]: late", "type": "stream_error"}}


async def test_a_long_prompt_with_all_its_log_probabilities_streams_in_chunks(echo_worker):
    prompt = "word " * 3000
    async with running_router(await echo_worker()) as gateway:
        events = await events_of(gateway, prompt=prompt, echo=True, logprobs=5, max_tokens=1)
        builder = (await gateway.router.catalog.resolve("m")).builder
    choice = joined(events)[0]
    assert choice["text"].startswith(prompt)
    assert len(choice["logprobs"]["tokens"]) == builder.text(prompt).tokens + 1
    assert len(events) > 5


async def test_several_long_prompts_are_streamed_at_the_pace_of_their_client(echo_worker):
    prompts = ["word " * 3000] * 3
    fields = {"prompt": prompts, "n": 2, "echo": True, "logprobs": 5, "max_tokens": 1}
    async with running_router(await echo_worker(), slow_reader_bytes=50_000) as gateway:
        choices = joined(await events_of(gateway, **fields))
        builder = (await gateway.router.catalog.resolve("m")).builder
    for index in range(6):
        assert len(choices[index]["logprobs"]["tokens"]) == builder.text(prompts[0]).tokens + 1


async def test_the_official_client_reads_the_old_log_probabilities(echo_worker):
    async with running_router(await echo_worker()) as gateway:
        base_url = f"{str(gateway.http.base_url).rstrip('/')}/v1"
        async with openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
            answer = await client.completions.create(
                model="m", prompt="[[say:hi]]", echo=True, logprobs=1, max_tokens=5
            )
            stream = await client.completions.create(model="m", prompt="[[say:hi]]", logprobs=1, stream=True)
            chunks = [chunk async for chunk in stream]
    logprobs = answer.choices[0].logprobs
    assert logprobs.token_logprobs[0] is None
    assert logprobs.text_offset[0] == 0
    assert "".join(chunk.choices[0].text for chunk in chunks) == "hi"
    assert [
        token for chunk in chunks if chunk.choices[0].logprobs for token in chunk.choices[0].logprobs.tokens
    ] == [
        "hi",
        "<|im_end|>",
    ]
