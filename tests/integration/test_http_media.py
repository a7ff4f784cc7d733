"""Images in chats: from the client's data URL or address to the tensors and placeholders that an engine gets."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from servicers.media_keys import keyed_ids
from smg_proto.engine.v1 import work_pb2
from tests.conftest import EchoWorkers
from tests.integration.running_router import running_router
from tests.vision_dirs import IMAGE_TOKENS, data_url, picture

CHAT = "/v1/chat/completions"
RED, BLUE = picture(255, 0, 0), picture(0, 0, 255, kind="JPEG")
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(vision_dir, tokenizer_dir):
    """A router with a model that sees and one that does not; its media process is started once."""
    seeing, blind = EchoWorkers(vision_dir), EchoWorkers(tokenizer_dir)
    urls = await seeing(model_ids=("eyes",)), await blind(model_ids=("m",))
    media = {"media_private_addresses": "allow", "media_max_bytes": 100_000, "media_max_pixels": 10_000}
    async with running_router(*urls, media={**media, "media_max_items": 3}) as running:
        yield running
    await seeing.stop_all()
    await blind.stop_all()


def image(url):
    return {"type": "image_url", "image_url": {"url": url}}


def body(*parts, model="eyes", **fields):
    text = {"type": "text", "text": "[[mirror]]"}
    return {"model": model, "messages": [{"role": "user", "content": [*parts, text]}], **fields}


async def seen(gateway, *parts, **fields):
    """What the engine says of the media that it got."""
    answer = await gateway.http.post(CHAT, json=body(*parts, **fields))
    assert answer.status_code == 200, answer.text
    return json.loads(answer.json()["choices"][0]["message"]["content"])["media"]


async def refusal(gateway, *parts, **fields):
    answer = await gateway.http.post(CHAT, json=body(*parts, **fields))
    return answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["message"]


@asynccontextmanager
async def web(answers):
    """A web server: path to status, headers and body. Yields its address and the requests it has got."""
    got = []

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        got.append(head)
        status, headers, content = answers[head.split()[1]]
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {status} x\r\n{lines}connection: close\r\n\r\n".encode() + content)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", got


async def test_an_image_becomes_tensors_and_placeholders(gateway):
    (one,) = await seen(gateway, image(data_url(RED)))
    assert one["modality"] == "image"
    assert one["length"] == one["placeholders"] == IMAGE_TOKENS
    assert one["tensors"] == {"pixel_values": "float32 [1, 3, 56, 56]"}


async def test_usage_counts_the_tokens_of_an_image(gateway):
    plain = (await gateway.http.post(CHAT, json=body())).json()["usage"]
    with_image = (await gateway.http.post(CHAT, json=body(image(data_url(RED))))).json()["usage"]
    assert with_image["prompt_tokens"] - plain["prompt_tokens"] == IMAGE_TOKENS


async def test_several_images_keep_their_order(gateway):
    first, second = await seen(gateway, image(data_url(RED)), image(data_url(BLUE, "image/jpeg")))
    assert second["offset"] == first["offset"] + IMAGE_TOKENS
    assert first["digest"] != second["digest"]
    swapped = await seen(gateway, image(data_url(BLUE)), image(data_url(RED)))
    assert [each["digest"] for each in swapped] == [second["digest"], first["digest"]]


async def test_the_declared_type_of_a_data_url_does_not_count(gateway):
    declared = [data_url(RED, kind) for kind in ("image/png", "image/jpeg", "text/plain")]
    digests = {(await seen(gateway, image(url)))[0]["digest"] for url in declared}
    assert len(digests) == 1


async def test_what_a_user_types_is_no_placeholder(gateway):
    typed = {"type": "text", "text": "<image> <image>"}
    (one,) = await seen(gateway, typed, image(data_url(RED)))
    assert one["placeholders"] == IMAGE_TOKENS


async def test_equal_prompts_with_different_images_share_no_cached_prefix(gateway):
    def asked(url):
        # Long enough for blocks of the cache to end behind the image.
        tail = {"type": "text", "text": "[[say:x]]" + " and so on" * 40}
        return {
            "model": "eyes",
            "messages": [{"role": "user", "content": [image(url), tail]}],
        }

    async def cached(url):
        usage = (await gateway.http.post(CHAT, json=asked(url))).json()["usage"]
        return (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)

    green, grey = data_url(picture(0, 255, 0)), data_url(picture(90, 90, 90))
    assert await cached(green) == 0
    assert await cached(green) > IMAGE_TOKENS
    assert await cached(grey) < IMAGE_TOKENS
    assert await cached(grey) > IMAGE_TOKENS


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (image("data:image/png;base64"), "comma"),
        (image("data:image/png;base64,@@@"), "base64"),
        (image("data:image/png;base64,"), "no content"),
        (image(data_url(b"hello, no image at all")), "PNG, JPEG"),
        (image(data_url(RED[: len(RED) // 2])), "damaged"),
        (image(data_url(picture(1, 2, 3, size=(101, 100)))), "10000 pixels"),
        (image(data_url(RED + b"\0" * 100_000)), "100000 bytes"),
        (image("ftp://example.com/a.png"), "http"),
        (image("http://[::1"), "no URL"),
        (image("http://169.254.169.254/latest/meta-data"), "169.254.169.254"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_bad_image_is_refused_by_name(gateway, part, named):
    status, code, message = await refusal(gateway, part)
    assert status == 400
    assert code == 400
    assert "messages[0].content[0]" in message
    assert named in message


async def test_moving_pictures_are_refused(gateway):
    import io

    from PIL import Image

    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    _, _, message = await refusal(gateway, image(data_url(buffer.getvalue())))
    assert "still images" in message


async def test_only_so_many_images_are_taken(gateway):
    status, _, message = await refusal(gateway, *[image(data_url(RED))] * 4)
    assert status == 400
    assert "at most 3" in message


async def test_media_that_no_worker_takes_are_refused(gateway):
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    video = {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}
    for model, part, code in (
        ("m", image(data_url(RED)), "process_messages_failed"),
        ("eyes", sound, "multimodal_not_supported"),
        ("eyes", video, "multimodal_not_supported"),
    ):
        status, told, message = await refusal(gateway, part, model=model)
        assert (status, told) == (400, code)
        assert model in message


async def test_a_part_of_an_unknown_kind_is_refused(gateway):
    for part in ({"type": "hologram"}, {"type": "image_url", "image_url": "https://example.com/a.png"}):
        status, code, _ = await refusal(gateway, part)
        assert (status, code) == (400, "unsupported_content_part")


async def test_output_other_than_text_is_refused(gateway):
    assert (await refusal(gateway, modalities=["text", "audio"]))[1] == "unsupported_output_modality"
    assert (await refusal(gateway, return_audio=True))[1] == "audio_output_not_supported"


async def test_an_image_is_fetched_and_redirects_are_followed(gateway):
    answers = {
        "/old": (302, {"location": "/a.png"}, b""),
        "/a.png": (200, {"content-type": "text/html"}, RED),
    }
    async with web(answers) as (address, got):
        (one,) = await seen(gateway, image(f"{address}/old"))
    (same,) = await seen(gateway, image(data_url(RED)))
    assert one["digest"] == same["digest"]
    assert len(got) == 2
    assert not any("authorization" in head.lower() or "cookie" in head.lower() for head in got)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ((404, {}, b""), "status 404"),
        ((200, {}, b""), "nothing"),
        ((200, {}, b"x" * 100_001), "100000 bytes"),
        ((200, {"content-encoding": "gzip"}, b"x"), "compressed"),
        ((302, {"location": "/a"}, b""), "redirected more than 3"),
        ((302, {"location": "http://169.254.169.254/"}, b""), "169.254.169.254"),
        ((302, {"location": "file:///etc/passwd"}, b""), "https://"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_fetched_is_told(gateway, answer, named):
    async with web({"/a": answer}) as (address, _):
        status, _, message = await refusal(gateway, image(f"{address}/a"))
    assert status == 400
    assert named in message


async def test_an_address_that_nobody_answers_is_told(gateway):
    async with web({}) as (address, _):
        pass
    status, _, message = await refusal(gateway, image(f"{address}/a"))
    assert status == 400
    assert "cannot be fetched" in message


async def test_grpc_clients_send_images_too(gateway):
    from smg_proto.chat.v1 import chat_pb2, message_pb2

    parts = message_pb2.ContentParts(
        parts=[
            message_pb2.ContentPart(image_url=message_pb2.MediaUrl(url=data_url(RED))),
            message_pb2.ContentPart(text="[[mirror]]"),
        ]
    )
    chat = chat_pb2.ChatRequest(model="eyes", messages=[message_pb2.ChatMessage(role="user", parts=parts)])
    answer = await gateway.chats.CreateChatCompletion(chat_pb2.CreateChatCompletionRequest(chat=chat))
    (one,) = json.loads(answer.completion.choices[0].message.content)["media"]
    assert one["placeholders"] == IMAGE_TOKENS


async def test_responses_take_images_too(gateway):
    content = [
        {"type": "input_image", "image_url": data_url(RED)},
        {"type": "input_text", "text": "[[mirror]]"},
    ]
    answer = await gateway.http.post(
        "/v1/responses", json={"model": "eyes", "input": [{"role": "user", "content": content}]}
    )
    assert answer.status_code == 200, answer.text
    (message,) = answer.json()["output"]
    (one,) = json.loads(message["content"][0]["text"])["media"]
    assert one["placeholders"] == IMAGE_TOKENS


async def test_streams_and_choices_see_the_same_image(gateway):
    answer = await gateway.http.post(CHAT, json=body(image(data_url(RED)), n=2))
    texts = [choice["message"]["content"] for choice in answer.json()["choices"]]
    # A further choice's text has its number at the end.
    first, second = (json.JSONDecoder().raw_decode(text)[0]["media"] for text in texts)
    assert first == second
    streamed = await gateway.http.post(CHAT, json=body(image(data_url(RED)), stream=True))
    chunks = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: {")]
    pieces = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
    assert json.loads("".join(pieces))["media"] == first


async def test_keys_of_caches_follow_the_contract():
    digest = bytes(range(32))
    medium = work_pb2.Medium(offset=1, length=6, digest=digest)
    request = work_pb2.Generate(prompt_ids=b"\1\0\0\0" * 8, media=[medium])
    keyed = keyed_ids(request)
    assert keyed[:4] == keyed[28:] == b"\1\0\0\0"
    for number in range(6):
        at = 8 * (number % 4)
        word = int.from_bytes(digest[at : at + 4], "little") | 1 << 31
        assert keyed[4 + 4 * number : 8 + 4 * number] == word.to_bytes(4, "little")
