"""Fixtures that every kind of test may use: a tokenizer directory, and echo workers on real sockets."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import pytest

from tests.examples import register_profiles
from tests.tokenizer_dirs import DECISION_WORDS, PLAIN_TEMPLATE, THINKING_TEMPLATE, make_tokenizer_dir

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from servicers.serve import RunningServer

register_profiles()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first: two processes that share the files then end within one short file of each other."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Make what libraries do at their import cheap for the tests that follow.

    pytest hangs its two handlers on every logger that keeps its records to itself, three times a test, and torch has
    some forty of those. And torch's threads wait for each other by spinning: on networks as small as ours that is
    most of their work.
    """
    for logger in logging.getLogger().manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with tokenizer.json, tokenizer_config.json, config.json and generation_config.json."""
    return make_tokenizer_dir(tmp_path_factory.mktemp("tokenizer") / "tiny-chat")


@pytest.fixture(scope="session")
def decision_tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for a model that can be asked by labels: yes, no, and pairs of letters are one token each."""
    target = tmp_path_factory.mktemp("tokenizer") / "tiny-decider"
    return make_tokenizer_dir(target, vocab_size=3000, chat_template=PLAIN_TEMPLATE, words=DECISION_WORDS)


@pytest.fixture(scope="session")
def thinking_tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a template of a model that reasons by default."""
    target = tmp_path_factory.mktemp("tokenizer") / "tiny-thinker"
    return make_tokenizer_dir(target, chat_template=THINKING_TEMPLATE)


@pytest.fixture(scope="session")
def vision_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that sees, with random weights: its tokenizer, its processor and its network."""
    from tests.vision_dirs import make_vision_dir

    return make_vision_dir(tmp_path_factory.mktemp("model") / "tiny-llava")


class EchoWorkers:
    """Starts echo servers in this process: `url = await echo_worker(step_seconds=0.01)`."""

    def __init__(self, tokenizer_dir: Path) -> None:
        self._tokenizer_dir = tokenizer_dir
        self.servers: dict[str, RunningServer] = {}

    async def __call__(self, **options: object) -> str:
        """Start a server on a free port and return its grpc:// address.

        Args:
            options: fields of servicers.base.EngineOptions; model_paths is the fixture's tokenizer and model_ids
                is ("m",) unless given. `port`, `limits` and `tls` go to the server.
        """
        from servicers.base import EngineOptions
        from servicers.echo import create_engine
        from servicers.serve import start_server

        server_options = {key: options.pop(key) for key in ("port", "limits", "tls") if key in options}
        options.setdefault("model_paths", (str(self._tokenizer_dir),))
        options.setdefault("model_ids", ("m",))
        engine = create_engine(EngineOptions(**options))
        server = await start_server(engine, host="127.0.0.1", **server_options)
        self.servers[server.url] = server
        return server.url

    async def stop(self, url: str, grace_s: float = 0.0) -> None:
        """Stop one server: sessions end with UNAVAILABLE once their work is done or the grace period is over."""
        await self.servers.pop(url).stop(grace_s)

    async def stop_all(self) -> None:
        """Stop what still runs."""
        for url in list(self.servers):
            await self.stop(url)


@pytest.fixture
async def echo_worker(tokenizer_dir: Path) -> AsyncIterator[EchoWorkers]:
    """Factory of echo servers; all are stopped at the end of the test."""
    workers = EchoWorkers(tokenizer_dir)
    yield workers
    await workers.stop_all()
