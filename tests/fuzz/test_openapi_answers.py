"""What a running router really answers stands in its document, to the last member."""

import json

import pytest
import yaml

from tests.integration.running_router import running_router
from tests.unit.gateway.openapi.judge import closed, closed_document, judge, plain_document

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
FUNCTION = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def chat(text="[[say:one two three]]", **members):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **members}


def completion(prompt="[[say:one two three]]", **members):
    return {"model": "m", "prompt": prompt, **members}


def documented(path, method, answer):
    """The answer's own entry in the document, its headers checked."""
    operation = plain_document()["paths"][path][method]
    entry = operation["responses"][str(answer.status_code)]
    if "$ref" in entry:
        entry = plain_document()["components"]["responses"][entry["$ref"].rsplit("/", 1)[1]]
    for name, header in entry.get("headers", {}).items():
        component = plain_document()["components"]["headers"][header["$ref"].rsplit("/", 1)[1]]
        assert name in answer.headers or not component.get("required"), name
    known = {name.lower() for name in entry.get("headers", ())} | {
        "content-type", "content-length", "transfer-encoding", "cache-control", "date", "connection",
    }  # fmt: skip
    assert {*answer.headers} <= known
    return entry


def faults(path, method, answer):
    """What the document says against an answer."""
    entry = documented(path, method, answer)
    if "content" not in entry:
        return ["a body"] if answer.content else []
    kind = answer.headers["content-type"].split(";")[0]
    schema = entry["content"][kind]["schema"]
    read = {"application/json": lambda _: answer.json(), "application/yaml": yaml.safe_load}.get(kind, str)
    value = read(answer.text)
    return [fault.message for fault in judge(schema, closed_document()).iter_errors(value)]


def events(answer):
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = answer.text.split("\n\n")
    assert frames.pop() == ""
    return [frame.removeprefix("data: ") for frame in frames]


@pytest.mark.parametrize(
    "body",
    [
        chat(),
        chat("[[say:]]"),
        chat(n=3),
        chat(max_tokens=1),
        chat(stop="two", no_stop_trim=True),
        chat(logprobs=True, top_logprobs=2),
        chat(logprobs=True, max_tokens=1),
        chat('[[tool:weather:{"city": "Rome"}]]', tools=[FUNCTION]),
        chat("[[reason:let me think]][[say:done]]"),
        chat("[[cached:3]][[rtok:2]][[spec:9:4]][[say:x]]"),
    ],
    ids=str,
)
async def test_a_chat_answer_is_as_documented(echo_worker, body):
    async with running_router(await echo_worker()) as gateway:
        whole = await gateway.http.post(CHAT, json=body)
        options = {"include_usage": True, "continuous_usage_stats": True}
        stream = await gateway.http.post(CHAT, json={**body, "stream": True, "stream_options": options})
    assert (whole.status_code, stream.status_code) == (200, 200)
    assert faults(CHAT, "post", whole) == []
    assert documented(CHAT, "post", stream)
    *chunks, done = events(stream)
    assert done == "[DONE]"
    assert [
        fault.message for chunk in chunks for fault in closed("ChatChunk").iter_errors(json.loads(chunk))
    ] == []


@pytest.mark.parametrize(
    "body",
    [
        completion(),
        completion(["[[say:one]]", "[[say:two]]"], n=2),
        completion([1, 2, 3]),
        completion(max_tokens=1),
        completion(stop=["two"]),
        completion(logprobs=2),
        completion(logprobs=0, echo=True),
        completion(echo=True, max_tokens=0),
    ],
    ids=str,
)
async def test_a_text_completion_is_as_documented(echo_worker, body):
    async with running_router(await echo_worker()) as gateway:
        whole = await gateway.http.post(COMPLETIONS, json=body)
        options = {"include_usage": True, "continuous_usage_stats": True}
        stream = await gateway.http.post(
            COMPLETIONS, json={**body, "stream": True, "stream_options": options}
        )
    assert (whole.status_code, stream.status_code) == (200, 200)
    assert faults(COMPLETIONS, "post", whole) == []
    assert documented(COMPLETIONS, "post", stream)
    *chunks, done = events(stream)
    assert done == "[DONE]"
    assert [
        fault.message for chunk in chunks for fault in closed("TextChunk").iter_errors(json.loads(chunk))
    ] == []


ENCODED = [
    ("embeddings", {"model": "m", "input": "x"}),
    ("embeddings", {"model": "m", "input": [[1, 2]], "encoding_format": "base64", "dimensions": 8, "layer": 1}),
    ("embeddings", {"model": "m", "input": ""}),
    ("embeddings", {"model": "no/such", "input": "x"}),
    ("embeddings", {"model": "m", "input": "[[error:UNAVAILABLE:down]]"}),
    ("embeddings", {"model": "m", "images": ["x"]}),
    ("rerank", {"model": "m", "query": "x", "documents": ["a", {"text": "b"}], "return_documents": True}),
    ("rerank", {"model": "m", "query": "x", "documents": []}),
    ("classify", {"model": "m", "input": ["x", {"text": "a", "text_pair": "b"}, "word " * 20_000]}),
    ("classify", {"model": "m", "input": "x", "options": {"return_meta": True}}),
    ("classify", {"input": {"text": 5}}),
    ("bundle", {"tasks": [{"id": "a", "classify": {"model": "m", "input": "x"}}, {"id": "b", "rerank": {}}]}),
    ("bundle", {"tasks": []}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body"), ENCODED, ids=[f"{path}-{n}" for n, (path, _) in enumerate(ENCODED)]
)
async def test_what_encoders_answer_is_as_documented(echo_worker, path, body):
    async with running_router(await echo_worker()) as gateway:
        answer = await gateway.http.post(f"/v1/{path}", json=body)
    assert faults(f"/v1/{path}", "post", answer) == []


@pytest.mark.parametrize(
    ("path", "body", "schema"),
    [(CHAT, chat, "ChatStreamError"), (COMPLETIONS, completion, "TextStreamError")],
    ids=["chat", "completion"],
)
async def test_a_stream_that_fails_ends_as_documented(echo_worker, path, body, schema):
    failing = body("[[say:one two three four]][[errorafter:2:INTERNAL:late]]", stream=True)
    async with running_router(await echo_worker()) as gateway:
        answer = await gateway.http.post(path, json=failing)
    *_, error, done = events(answer)
    assert done == "[DONE]"
    assert [fault.message for fault in closed(schema).iter_errors(json.loads(error))] == []


ENGINE_STATUSES = {
    "INVALID_ARGUMENT": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


async def test_an_error_of_an_engine_is_as_documented(echo_worker):
    breaker = {"disable_circuit_breaker": True}
    async with running_router(await echo_worker(), breaker=breaker) as gateway:
        for name, status in ENGINE_STATUSES.items():
            for path, body in ((CHAT, chat), (COMPLETIONS, completion)):
                answer = await gateway.http.post(path, json=body(f"[[error:{name}:no]]"))
                assert answer.status_code == status, answer.text
                assert faults(path, "post", answer) == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"no json", 400, "json_parse_error"),
        (b'{"model": "m"}', 400, "json_parse_error"),
        (json.dumps(chat(temperature=9)).encode(), 400, 400),
        (json.dumps(chat(modalities=["audio"])).encode(), 400, "unsupported_output_modality"),
        (json.dumps(chat(model="other")).encode(), 404, "model_not_found"),
        (b" " * 5000, 413, "request_body_too_large"),
    ],
    ids=["no JSON", "no messages", "a range", "a modality", "no such model", "a long body"],
)
async def test_an_error_of_the_gateway_is_as_documented(echo_worker, body, status, code):
    async with running_router(await echo_worker(), max_payload_size=4096) as gateway:
        headers = {"content-type": "application/json"}
        answer = await gateway.http.post(CHAT, content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert faults(CHAT, "post", answer) == []
    assert ("x-smg-error-code" in answer.headers) == (code not in (400, "json_parse_error"))


async def test_open_paths_and_keys_are_as_documented(echo_worker):
    async with running_router(await echo_worker(), callers={"api_key": "secret"}) as gateway:
        for path, item in plain_document()["paths"].items():
            if any(operation["tags"] == ["administration"] for operation in item.values()):
                continue
            for method, operation in item.items():
                answer = await gateway.http.request(method, path.replace("{model}", "m"))
                assert answer.status_code == (401 if operation["security"] else 200)
                assert faults(path, method, answer) == []
            other = await gateway.http.put(path.replace("{model}", "m"))
            assert other.status_code == 405
            assert "allow" in other.headers
            assert [fault.message for fault in closed("GatewayError").iter_errors(other.json())] == []


async def test_the_operators_paths_answer_as_documented(echo_worker):
    key = {"authorization": "Bearer secret"}
    async with running_router(await echo_worker(), callers={"api_key": "secret"}) as gateway:
        for path, item in plain_document()["paths"].items():
            for method in item:
                if item[method]["tags"] != ["administration"] or method == "delete":
                    continue
                real = path.replace("{id}", "worker-1")
                body = {"url": "grpc://127.0.0.1:1"} if method == "post" else {}
                refused = await gateway.http.request(method.upper(), real, json=body)
                assert refused.status_code == (200 if path == "/loads" else 401)
                assert faults(path, method, refused) == []
                answer = await gateway.http.request(method.upper(), real, json=body, headers=key)
                told = item[method]["responses"][str(answer.status_code)]
                assert answer.status_code in (200, 202, 206)
                assert judge(told["content"]["application/json"]["schema"], plain_document()).is_valid(
                    answer.json()
                )


async def test_a_head_that_is_too_long_is_answered_as_documented():
    async with running_router() as gateway:
        for path, item in plain_document()["paths"].items():
            method = next(iter(item))
            headers = {"x-much": "x" * 70_000}
            answer = await gateway.http.request(method, path.replace("{model}", "m"), headers=headers)
            assert answer.status_code == 431
            assert faults(path, method, answer) == []


async def test_without_workers_answers_are_as_documented():
    async with running_router() as gateway:
        for path in ("/v1/models", "/readiness"):
            answer = await gateway.http.get(path)
            assert answer.status_code == 503
            assert faults(path, "get", answer) == []
        assert faults("/v1/models/{model}", "get", await gateway.http.get("/v1/models/m")) == []


async def test_the_served_document_is_the_one_that_is_tested():
    async with running_router() as gateway:
        answer = await gateway.http.get("/openapi.json")
        head = await gateway.http.head("/openapi.json")
    assert answer.json() == plain_document()
    assert head.headers["content-length"] == str(len(answer.content))
    assert head.content == b""
