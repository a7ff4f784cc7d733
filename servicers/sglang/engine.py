"""The only file that imports SGLang: what the servicer calls of it, as Protocols, and where it comes from.

The Protocols have exactly the calls, parameters and attributes that are used, by SGLang's own names;
tests/unit/servicers/sglang compares them with the source of the installed package. Source: SGLang 0.5.23,
srt/entrypoints/engine.py, srt/managers/tokenizer_manager.py.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

from servicers.base import CannotStart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

# One answer of the engine: "output_ids" (all so far), "meta_info" with counts, log-probabilities and the finish
# reason; "embedding" in place of the ids for models that embed.
Output = dict[str, Any]


class LoraRegistry(Protocol):
    """The adapters that are loaded."""

    def get_all_adapters(self) -> Mapping[str, object]:
        """By name."""
        ...


class ModelConfig(Protocol):
    """What the model's files say, as SGLang read them."""

    vocab_size: int
    hidden_size: int
    context_len: int
    is_generation: bool
    dtype: object
    # Hugging Face's configuration: architectures, model_type, id2label, …
    hf_config: Any
    # A set of ids, or None.
    hf_eos_token_id: Any


class TokenizerManager(Protocol):
    """The part of an engine that runs in our process."""

    model_config: ModelConfig
    lora_registry: LoraRegistry
    # Longest prompt that the scheduler takes, one more.
    max_req_input_len: int | None

    def generate_request(self, obj: object, request: None) -> AsyncIterator[Output]:
        """Embed: Engine.async_encode takes text only."""
        ...

    async def flush_cache(self) -> Any:
        """Forget cached prefixes. `success` is False while requests run."""
        ...

    async def get_loads(self) -> Sequence[Any]:
        """What the scheduler of each data-parallel rank wrote last."""
        ...

    async def start_profile(self, req: object) -> Any:
        """Begin to profile. Raises RuntimeError."""
        ...

    async def stop_profile(self) -> Any:
        """End it. Raises RuntimeError."""
        ...


class EngineApi(Protocol):
    """sglang.Engine."""

    tokenizer_manager: TokenizerManager

    async def async_generate(
        self,
        *,
        input_ids: list[int] | list[list[int]],
        sampling_params: dict[str, Any],
        rid: str | list[str],
        stream: bool = False,
        return_logprob: bool = False,
        logprob_start_len: int | list[int] | None = None,
        top_logprobs_num: int | None = None,
        token_ids_logprob: list[int] | list[list[int]] | None = None,
        lora_path: str | None = None,
        require_reasoning: bool = False,
        routed_dp_rank: int | None = None,
        external_trace_header: dict[str, str] | None = None,
    ) -> Any:
        """An async iterator of outputs with `stream`; else one output, or a list of them for several prompts.

        Cancelling what waits for it aborts the request in the scheduler.
        """
        ...

    async def async_load_lora_adapter(self, lora_name: str, lora_path: str) -> Any:
        """Load an adapter; the answer has `success` and `error_message`."""
        ...

    async def async_unload_lora_adapter(self, lora_name: str) -> Any:
        """Unload an adapter; the answer as above."""
        ...

    def shutdown(self) -> None:
        """End the engine's processes. Blocks."""
        ...


class SglangPackage(Protocol):
    """What is imported of SGLang."""

    @property
    def version(self) -> str:
        """Of the package."""
        ...

    def make_engine(self, arguments: Mapping[str, Any]) -> EngineApi:
        """Start an engine; blocks until the model is loaded. The arguments are those of ServerArgs."""
        ...

    def embedding_request(self, *, input_ids: list[int], rid: str, lora_path: str | None) -> object:
        """Make an EmbeddingReqInput."""
        ...

    def profile_request(self, *, output_dir: str | None) -> object:
        """Make a ProfileReq."""
        ...


class _Installed:
    """The package that is installed."""

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return version("sglang")

    def make_engine(self, arguments: Mapping[str, Any]) -> EngineApi:
        # Read when SGLang is imported, here and in its own processes: log-probabilities before the temperature, as
        # the contract has them.
        os.environ["SGLANG_RETURN_ORIGINAL_LOGPROB"] = "1"  # noqa: TID251 -- set for a library, not read
        return _import("sglang.srt.entrypoints.engine").Engine(**arguments)

    def embedding_request(self, *, input_ids: list[int], rid: str, lora_path: str | None) -> object:
        structs = _import("sglang.srt.managers.io_struct")
        return structs.EmbeddingReqInput(input_ids=input_ids, rid=rid, lora_path=lora_path)

    def profile_request(self, *, output_dir: str | None) -> object:
        return _import("sglang.srt.managers.io_struct").ProfileReq(output_dir=output_dir)


def find_package() -> SglangPackage:
    """The installed package; it is imported when the engine starts.

    Raises:
        CannotStart: there is none.
    """
    if importlib.util.find_spec("sglang") is None:
        raise CannotStart(
            "engine sglang needs SGLang, which is not installed; install it with:\n"
            f"  {sys.executable} -m pip install 'smg[sglang]'        # a CUDA machine is needed\n"
            "SGLang's own gRPC server works behind the router as it is, too: start it with --smg-grpc-mode and give "
            "its address to `smg launch --worker-urls grpc://HOST:PORT`"
        )
    return _Installed()


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CannotStart(f"SGLang is installed and cannot be imported: {error}") from error
