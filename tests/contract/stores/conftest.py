"""One PostgreSQL for the tests of a process: making one takes seconds."""

import uuid

import asyncpg
import pytest

from tests.contract.stores.servers import running_postgres


@pytest.fixture(scope="session")
def postgres():
    """The server: `.url` of its first database, `.kill()` and `.start()`."""
    with running_postgres() as server:
        yield server


async def empty_database(postgres):
    """SQLAlchemy's URL of a database without tables."""
    name = f"db_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(postgres.url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return sqlalchemy_url(postgres.url).replace("/postgres?", f"/{name}?")


def sqlalchemy_url(url):
    """The same for SQLAlchemy with asyncpg."""
    return url.replace("postgresql:", "postgresql+asyncpg:")
