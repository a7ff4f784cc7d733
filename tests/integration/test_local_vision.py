"""A model that sees on the local engine: its answers are those of the `transformers` package, image by image."""

import io

import pytest
import pytest_asyncio

from servicers.base import EngineOptions
from servicers.local import create_engine
from servicers.serve import start_server
from tests.integration.running_router import running_router
from tests.vision_dirs import IMAGE_TOKENS, data_url, picture

CHAT = "/v1/chat/completions"
TOKENS = 16
RED, BLUE = picture(255, 10, 0), picture(0, 40, 255, size=(40, 90))
GREY = picture(120, 120, 120, kind="JPEG")
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Reference:
    """What transformers makes of a conversation."""

    def __init__(self, directory):
        from transformers import AutoProcessor, LlavaForConditionalGeneration

        self.processor = AutoProcessor.from_pretrained(str(directory))
        self.model = LlavaForConditionalGeneration.from_pretrained(str(directory)).eval()

    def inputs(self, parts):
        from PIL import Image

        images = [Image.open(io.BytesIO(part)).convert("RGB") for part in parts if isinstance(part, bytes)]
        content = [
            {"type": "image"} if isinstance(part, bytes) else {"type": "text", "text": part} for part in parts
        ]
        text = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True
        )
        return self.processor(images=images or None, text=text, return_tensors="pt", add_special_tokens=False)

    def answer(self, parts):
        inputs = self.inputs(parts)
        output = self.model.generate(**inputs, do_sample=False, max_new_tokens=TOKENS)
        ids = output[0, inputs["input_ids"].shape[1] :]
        return self.processor.tokenizer.decode(ids, skip_special_tokens=True), inputs["input_ids"].shape[1]


@pytest.fixture(scope="module")
def reference(vision_dir):
    return Reference(vision_dir)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(vision_dir):
    options = EngineOptions(
        model_paths=(str(vision_dir),), model_ids=("eyes",), dtype="fp32", threads=1, max_running=4
    )
    server = await start_server(create_engine(options), host="127.0.0.1")
    async with running_router(server.url) as running:
        yield running
    await server.stop(0)


async def ask(gateway, parts, **fields):
    content = [
        {"type": "image_url", "image_url": {"url": data_url(part)}}
        if isinstance(part, bytes)
        else {"type": "text", "text": part}
        for part in parts
    ]
    body = {
        "model": "eyes",
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": TOKENS,
        **fields,
    }
    answer = await gateway.http.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def answered(gateway, parts, **fields):
    answer = await ask(gateway, parts, **fields)
    return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    "parts",
    [
        (RED, "What is it?"),
        ("Look: ", BLUE, "what is it?"),
        (RED, "and", BLUE, "differ?"),
        (BLUE, RED),
        (GREY, GREY, GREY, "all alike"),
        ("no picture at all",),
    ],
    ids=["one", "one in text", "two", "two, nothing between", "three equal ones", "none"],
)
async def test_answers_are_those_of_transformers(gateway, reference, parts):
    assert await answered(gateway, parts) == reference.answer(parts)


async def test_the_engine_says_that_it_takes_images(gateway):
    assert gateway.router.registry.card("eyes").capabilities.modalities == ["image"]


async def test_answers_depend_on_the_image(reference):
    """What the other tests rest on: the network is not blind."""
    answers = {reference.answer((image, "What is it?"))[0] for image in (RED, BLUE, GREY)}
    assert len(answers) == 3


async def test_the_prefix_cache_never_takes_one_image_for_another(gateway, reference):
    tail = "What is it? " * 10
    for image in (RED, BLUE, RED, GREY, BLUE):
        assert (await answered(gateway, (image, tail)))[0] == reference.answer((image, tail))[0]
    usage = (await ask(gateway, (RED, tail)))["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > IMAGE_TOKENS


async def test_choices_share_the_look_at_an_image(gateway, reference):
    answer = await ask(gateway, (RED, "and", BLUE), n=3)
    texts = {choice["message"]["content"] for choice in answer["choices"]}
    assert texts == {reference.answer((RED, "and", BLUE))[0]}


async def test_a_constraint_holds_after_an_image(gateway):
    schema = {"name": "s", "schema": {"enum": ["red", "blue"]}}
    text, _ = await answered(
        gateway, (RED, "Which?"), response_format={"type": "json_schema", "json_schema": schema}
    )
    assert text in ('"red"', '"blue"')
