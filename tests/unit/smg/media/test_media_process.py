"""MediaProcesses: a process that dies, hangs or is no use costs the one request, and the next one gets another."""

import asyncio

import pytest

from smg.errors import DeadlineExceeded, InternalError
from smg.media.preparer import MediaPreparer
from smg.media.process import MediaProcesses
from smg.media.values import MediaLimits, MediaPart
from tests.vision_dirs import IMAGE_TOKENS, picture

PART = MediaPart("messages[0].content[0]", "image", "data:,")


class Children(MediaProcesses):
    """Counts the processes that it starts; the first ones are others."""

    def __init__(self, limits, *commands):
        super().__init__(limits)
        self.commands = list(commands)
        self.started = []

    async def _start(self):
        if not self.commands:
            process = await super()._start()
        else:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*self.commands.pop(0), stdin=pipe, stdout=pipe)
        self.started.append(process)
        return process


async def test_a_process_that_dies_is_replaced_and_bad_files_are_named(vision_dir, tokenizer_dir):
    children = Children(MediaLimits(), ("true",))
    try:
        with pytest.raises(InternalError, match="died"):
            await children.prepare(vision_dir, [PART], [picture(1, 2, 3)])
        (medium,) = await children.prepare(vision_dir, [PART], [picture(1, 2, 3)])
        assert len(medium.ids) == IMAGE_TOKENS
        with pytest.raises(InternalError, match="processor"):
            await children.prepare(tokenizer_dir, [PART], [picture(1, 2, 3)])
        assert len(children.started) == 2
    finally:
        await children.close()
    assert all(process.returncode is not None for process in children.started)


async def test_a_process_that_takes_too_long_is_ended(vision_dir):
    children = Children(MediaLimits(process_timeout_s=0.05), ("sleep", "60"))
    with pytest.raises(DeadlineExceeded, match=r"0\.05 s"):
        await children.prepare(vision_dir, [PART], [b"x"])
    (process,) = children.started
    assert process.returncode is not None
    await children.close()


async def test_a_client_that_leaves_does_not_stop_the_process_at_its_work(vision_dir):
    children = Children(MediaLimits(), ("sleep", "60"))
    asking = asyncio.create_task(children.prepare(vision_dir, [PART], [b"x"]))
    while not children.started:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.005)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    (process,) = children.started
    assert process.returncode is None
    await children.close()
    assert process.returncode is not None


class Files:
    def __init__(self, directory):
        self.path = directory

    async def directory(self, model_id):
        return self.path


class Counting:
    """Stands where processes do: tells what it was asked."""

    def __init__(self):
        self.asked = []

    async def prepare(self, directory, parts, contents):
        from smg.media.values import PreparedMedium, Tensor

        self.asked += contents
        tensor = [Tensor("pixel_values", "uint8", (len(each),), each) for each in contents]
        return [PreparedMedium(1, 1, (1,), (each,), b"d" * 32) for each in tensor]


async def test_an_image_that_comes_again_is_not_processed_again(tmp_path):
    counting = Counting()
    preparer = MediaPreparer(Files(tmp_path), None, counting, MediaLimits(cache_bytes=3))
    first, again = (PART._replace(url=f"data:,{text}") for text in ("aa", "b"))
    one, two, three = await preparer.prepare("m", "f", [first, again, first])
    assert one == three
    assert sorted(counting.asked) == [b"aa", b"b"]
    assert await preparer.prepare("m", "f", [again, first]) == [two, one]
    assert len(counting.asked) == 2
    # Another model's processor makes something else of it.
    await preparer.prepare("m", "other", [first])
    assert len(counting.asked) == 3
    # There is room for three bytes: what was not used for longest is gone.
    await preparer.prepare("m", "f", [again])
    assert len(counting.asked) == 4
