"""Fetches a worker's tokenizer as a router does, and looks whether prompts can be made with it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from smg.cli.doctor.findings import Finding, ok, problem, warning
from smg.cli.doctor.grpc_calls import CallFailed
from smg.errors import EngineError, NotFound, SmgError
from smg.prompt.builder import PromptBuilder
from smg.workers.options import WorkerOptions
from smg.workers.tokenizer_archive import save_archive
from smg_proto.engine.v1 import card_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from smg.cli.doctor.grpc_calls import Calls
    from smg.cli.doctor.wire import Target
    from smg.workers.tokenizer_archive import ArchiveChunk

_SESSION_METHOD = "/smg.engine.v1.EngineService/GetTokenizer"
_GIVE_ONE = "give the router the model's tokenizer yourself: --tokenizer-path DIR"


class _Parser(Protocol):
    def FromString(self, data: bytes, /) -> ArchiveChunk: ...  # noqa: N802 - protobuf's name


async def session_tokenizer(calls: Calls, card: card_pb2.ModelCard, target: Target) -> AsyncIterator[Finding]:
    """The tokenizer of a model of an smg.engine.v1 worker."""
    del target
    if not card.tokenizer_sha256:
        yield problem("tokenizer", f"the worker has no tokenizer for {card.id}", _GIVE_ONE)
        return
    question = card_pb2.GetTokenizerRequest(model=card.id).SerializeToString()
    async for finding in _fetched(calls, _SESSION_METHOD, question, card_pb2.GetTokenizerResponse):
        yield finding


async def server_tokenizer(calls: Calls, service: str) -> AsyncIterator[Finding]:
    """The tokenizer of an SGLang or vLLM server. Args: service: path of its service."""
    from smg_grpc_proto.generated import common_pb2

    async for finding in _fetched(calls, f"{service}GetTokenizer", b"", common_pb2.GetTokenizerChunk):
        yield finding


async def _fetched(calls: Calls, method: str, question: bytes, kind: _Parser) -> AsyncIterator[Finding]:
    options = WorkerOptions()
    with tempfile.TemporaryDirectory(prefix="smg-doctor-") as folder:
        directory = Path(folder)
        try:
            chunks = _chunks(calls, method, question, kind, options)
            await save_archive(chunks, directory, options)
        except NotFound:
            yield problem("tokenizer", "the worker has no tokenizer to give", _GIVE_ONE)
            return
        except SmgError as error:
            yield problem("tokenizer", f"it cannot be downloaded: {error.message}", _GIVE_ONE)
            return
        try:
            builder = await asyncio.to_thread(PromptBuilder.load, directory)
        except Exception as error:  # noqa: BLE001 - files of others may be wrong in any way
            yield problem("tokenizer", f"it was downloaded and cannot be read: {error}", _GIVE_ONE)
            return
    yield ok("tokenizer", f"downloaded and read: {builder.tokenizer.vocab_size} tokens")
    if builder.has_chat_template:
        yield ok("template", "there is a chat template")
    else:
        yield warning(
            "template",
            "there is no chat template: chats are refused, completions work",
            "give the router one: --chat-template FILE",
        )


async def _chunks(
    calls: Calls, method: str, question: bytes, kind: _Parser, options: WorkerOptions
) -> AsyncIterator[ArchiveChunk]:
    try:
        async for piece in calls.stream(method, question, options.tokenizer_timeout_s):
            yield kind.FromString(piece)
    except CallFailed as failed:
        code: int = failed.code.value[0]
        raise EngineError(failed.words or failed.code.name, engine_code=code) from failed
