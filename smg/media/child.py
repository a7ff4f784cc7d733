"""The media process, `python -m smg.media.child`: images in, a model's tensors and placeholder tokens out, over its pipes.

It is a process of its own because decoding what strangers sent may go wrong in ways that no thread survives, and because
the libraries for it are large. The router starts it when the first image comes, and ends it when it takes too long.

How many tokens an image takes, and which, is the business of the model's own processor (the `transformers` package):
it is given the marker that the chat template writes for one image, and that image alone.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, cast

from smg.media.frames import frame, read_frame
from smg.media.images import BadImage, decode

if TYPE_CHECKING:
    from typing import BinaryIO

    from PIL.Image import Image

_KEPT_PROCESSORS = 4
_PROBE_SIDE = 64
# What processors return beside what the model sees.
_TEXT_OUTPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"))
_DTYPES = frozenset(("float32", "float64", "int32", "int64", "uint8", "bool"))


class BadModel(Exception):
    """The model's files have no processor that can be used; the text says why."""


class ImageProcessor:
    """A model's processor."""

    def __init__(self, directory: str) -> None:
        """Load it.

        Raises:
            BadModel: it cannot be.
        """
        import transformers

        loader = cast("Any", transformers).AutoProcessor
        try:
            # Never code that came with the model.
            processor = loader.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
        except Exception as error:
            raise BadModel(
                f"the model's files have no processor that can be loaded: {error}"[:400]
            ) from error
        self._processor: Any = processor
        if getattr(self._processor, "image_processor", None) is None:
            raise BadModel(
                f"the model's processor ({type(self._processor).__name__}) takes no images; its files need a "
                "preprocessor_config.json or processor_config.json"
            )
        self._tokenizer: Any = self._processor.tokenizer
        self.placeholder_id = self._id_of(self._processor.image_token)
        self._marker = self._find_marker()
        self.marker_id = self._id_of(self._marker)

    def process(self, image: Image) -> tuple[list[int], dict[str, Any]]:
        """The tokens of an image, and its arrays by name."""
        return self._run(self._marker, image)

    def _run(self, marker: str, image: Image) -> tuple[list[int], dict[str, Any]]:
        output = self._processor(images=[image], text=[marker], return_tensors="np", add_special_tokens=False)
        ids = [int(each) for each in output["input_ids"][0]]
        return ids, {name: value for name, value in output.items() if name not in _TEXT_OUTPUTS}

    def _find_marker(self) -> str:
        """The text that stands for one image: some models begin it with a token that their template writes."""
        from PIL import Image

        probe = Image.new("RGB", (_PROBE_SIDE, _PROBE_SIDE))
        faults: list[str] = []
        for name in ("boi_token", "image_token"):
            marker = str(getattr(self._processor, name, None) or "")
            if not marker:
                continue
            try:
                ids, _ = self._run(marker, probe)
            except Exception as error:  # noqa: BLE001 - whatever a model's processor raises: it is not this marker
                faults.append(f"{name}: {error}")
                continue
            if self.placeholder_id in ids:
                return marker
        raise BadModel(
            f"the model's processor puts no tokens in place of an image: {'; '.join(faults)}"[:400]
        )

    def _id_of(self, token: Any) -> int:
        number: Any = self._tokenizer.convert_tokens_to_ids(str(token))
        if not isinstance(number, int):
            raise BadModel(f"the model's tokenizer does not know {token!r}, which stands for images")
        return number


class Server:
    """Answers one message after the other."""

    def __init__(self) -> None:
        self._processors: OrderedDict[str, ImageProcessor] = OrderedDict()

    def answer(self, head: dict[str, Any], parts: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to a message: what was made of each image, or what is wrong with one."""
        try:
            processor = self._processor(head["directory"])
        except BadModel as error:
            return {"fault": "model", "message": str(error)}, []
        items: list[dict[str, Any]] = []
        blobs: list[bytes] = []
        for index, data in enumerate(parts):
            try:
                ids, arrays = processor.process(decode(data, head["max_pixels"]))
            except BadImage as error:
                return {"fault": "image", "index": index, "message": str(error)}, []
            except Exception as error:  # noqa: BLE001 - a processor's own rules, on the shape of images for instance
                message = f"is not taken by the model's processor: {error}"[:300]
                return {"fault": "image", "index": index, "message": message}, []
            item, data_of = _packed(arrays)
            items.append({**item, "ids": ids})
            blobs += data_of
        return {
            "marker_id": processor.marker_id,
            "placeholder_id": processor.placeholder_id,
            "items": items,
        }, blobs

    def _processor(self, directory: str) -> ImageProcessor:
        found = self._processors.get(directory)
        if found is None:
            found = self._processors[directory] = ImageProcessor(directory)
            while len(self._processors) > _KEPT_PROCESSORS:
                self._processors.popitem(last=False)
        self._processors.move_to_end(directory)
        return found


def _packed(arrays: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """The arrays of one medium as tensors of the engine's contract, and their digest."""
    import numpy

    digest = hashlib.sha256()
    tensors: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for name in sorted(arrays):
        array: Any = numpy.ascontiguousarray(arrays[name])
        if array.dtype.name not in _DTYPES:
            array = array.astype("float32" if array.dtype.kind == "f" else "int64")
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        shape = [int(length) for length in array.shape]
        data: bytes = array.tobytes()
        digest.update(f"{name} {array.dtype.name} {','.join(map(str, shape))}\n".encode())
        digest.update(data)
        tensors.append({"name": name, "dtype": array.dtype.name, "shape": shape})
        blobs.append(data)
    return {"tensors": tensors, "digest": digest.hexdigest()}, blobs


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer until there is nothing more to read."""
    server = Server()
    while (message := read_frame(source)) is not None:
        target.writelines(frame(*server.answer(*message)))
        target.flush()


def main() -> None:
    """Serve on the pipes that the router has made."""
    # Libraries print; what they print must not lie between messages.
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, target)


if __name__ == "__main__":
    main()
