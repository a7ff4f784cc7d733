"""Models that see: which files hold one, and what their vision tower and projector make of an image.

Only the language model is computed by this engine. The tower and the projector are those of the `transformers` package,
run in a thread of their own; their states take the places of an image's placeholders. Families whose text model needs
more of an image than states in places (positions in three dimensions, as Qwen2-VL has them) are refused.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch

from servicers.local.config import ModelFileError
from servicers.local.refusal import INTERNAL, RefusalError
from servicers.token_bytes import ids_from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from smg_proto.engine.v1 import work_pb2

VISION_ARCHITECTURES = ("LlavaForConditionalGeneration",)
MODALITIES = ("image",)

_TEXT_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# How files name the language model's weights: as transformers wrote them before version 4.52, and since.
_PREFIXES = ("language_model.", "model.language_model.")
_MOST_KEPT = 32

logger = logging.getLogger(__name__)


class Sight(NamedTuple):
    """What one medium is to the language model.

    Attributes:
        positions: of its placeholders in the prompt, rising.
        states: one row for each, [positions, hidden_size].
    """

    positions: NDArray[np.int64]
    states: torch.Tensor


def is_vision_config(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a model that sees."""
    return (config.get("architectures") or [None])[0] in VISION_ARCHITECTURES


def text_config(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of the language model inside a model that sees.

    Raises:
        ModelFileError: `transformers` is not installed, or the language model is of a family not computed here.
    """
    _need_transformers()
    import transformers

    # The files leave out what is the family's default.
    whole = cast("Any", transformers).AutoConfig.from_pretrained(str(path), local_files_only=True)
    text: dict[str, Any] = whole.text_config.to_dict()
    kind = str(text.get("model_type"))
    if kind not in _TEXT_ARCHITECTURES:
        raise ModelFileError(
            f"the language model of {path} is of type {kind!r}; supported: {', '.join(_TEXT_ARCHITECTURES)}"
        )
    text["architectures"] = [_TEXT_ARCHITECTURES[kind]]
    text["tie_word_embeddings"] = bool(text.get("tie_word_embeddings") or config.get("tie_word_embeddings"))
    for source in (config, _generation_config(path)):
        if source.get("eos_token_id") is not None:
            text["eos_token_id"] = source["eos_token_id"]
    return text


def _generation_config(path: Path) -> dict[str, Any]:
    file = path / "generation_config.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


class TextWeights(Mapping[str, torch.Tensor]):
    """The language model's weights under the names that it has alone."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._weights = weights
        self._names = {_text_name(name): name for name in weights if _text_name(name)}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._weights[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _text_name(name: str) -> str:
    """Empty for weights of other parts."""
    if name == "lm_head.weight":
        return name
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            return rest if rest.startswith(("model.", "lm_head.")) else f"model.{rest}"
    return ""


class Eyes:
    """Vision tower and projector of one model, in a thread of their own, with what they saw last."""

    def __init__(self, path: Path, *, dtype: torch.dtype, device: str) -> None:
        """Load them. Blocks.

        Raises:
            ModelFileError: they cannot be.
        """
        _need_transformers()
        import transformers

        module = cast("Any", transformers)
        config = module.AutoConfig.from_pretrained(str(path), local_files_only=True)
        # The language model is computed elsewhere.
        config.text_config.num_hidden_layers = 0
        try:
            whole = module.AutoModelForImageTextToText.from_pretrained(
                str(path), config=config, dtype=dtype, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelFileError(f"the vision tower of {path} cannot be loaded: {error}") from error
        self._model: Any = whole.model
        del self._model.language_model
        self._model.eval().to(device)
        self._dtype, self._device = dtype, device
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="smg-vision")
        self._seen: OrderedDict[bytes, torch.Tensor] = OrderedDict()

    def start(
        self, request: work_pb2.Generate, done: Callable[[Sequence[Sight] | RefusalError], None]
    ) -> Future[None]:
        """Look at a request's media in the background; `done` is called in the eyes' thread."""

        def work() -> None:
            try:
                result = self.look(request)
            except RefusalError as refusal:
                result = refusal
            except Exception as error:
                logger.exception("looking at an image failed")
                result = RefusalError(f"looking at an image failed: {error!r}", code=INTERNAL)
            done(result)

        return self._pool.submit(work)

    @torch.inference_mode()
    def look(self, request: work_pb2.Generate) -> list[Sight]:
        """What a request's media are to the language model.

        Raises:
            RefusalError: the placeholders of one do not fit it.
        """
        ids = np.array(ids_from_bytes(request.prompt_ids), dtype=np.int64)
        sights: list[Sight] = []
        for number, medium in enumerate(request.media):
            states = self._states(medium)
            own = ids[medium.offset : medium.offset + medium.length]
            positions = np.flatnonzero(own == medium.placeholder_id) + medium.offset
            if len(positions) != len(states):
                raise RefusalError(
                    f"media[{number}] has {len(positions)} placeholders ({medium.placeholder_id}); its tensors make "
                    f"{len(states)} states"
                )
            sights.append(Sight(positions, states))
        return sights

    def stop(self) -> None:
        """Drop what has not begun and wait for the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _states(self, medium: work_pb2.Medium) -> torch.Tensor:
        """[states, hidden_size]"""
        key = bytes(medium.digest)
        states = self._seen.get(key)
        if states is None:
            tensors = {tensor.name: self._tensor(tensor) for tensor in medium.tensors}
            try:
                output = self._model.get_image_features(**tensors, return_dict=True)
            except (TypeError, ValueError, RuntimeError, KeyError) as error:
                raise RefusalError(
                    f"the model cannot look at an image of such tensors: {error}"[:300]
                ) from error
            found: Any = output.pooler_output
            states = torch.cat(list(found)) if not torch.is_tensor(found) else found.flatten(0, -2)
            self._seen[key] = states
            while len(self._seen) > _MOST_KEPT:
                self._seen.popitem(last=False)
        self._seen.move_to_end(key)
        return states

    def _tensor(self, tensor: work_pb2.Tensor) -> torch.Tensor:
        array = np.frombuffer(tensor.data, dtype=np.dtype(tensor.dtype).newbyteorder("<"))
        value = torch.from_numpy(array.reshape(tuple(tensor.shape)).copy()).to(self._device)
        return value.to(self._dtype) if value.is_floating_point() else value


def _need_transformers() -> None:
    if find_spec("transformers") is None:
        raise ModelFileError("models that see need the transformers package: pip install 'smg[media]'")
