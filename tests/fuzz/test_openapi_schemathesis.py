"""Requests made from the served document, good ones and broken ones: every answer must be one that it names.

schemathesis runs as a process of its own and speaks to a router with an echo engine over a socket.
"""

import asyncio
import json
import sys

import pytest

from tests.integration.running_router import running_router, until

KEY = "secret"
ENCODERS = ("EmbeddingsRequest", "RerankRequest", "ClassifyRequest")
# What is well formed and not served is told with 501; every other 5xx is a fault.
CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501]
# Some rules have no keyword in JSON Schema: those that compare members, and that integers have no fraction.
positive_data_acceptance.enabled = false

# A deadline of one millisecond passes, and 504 says so.
[[operations]]
include-path-regex = "^/v1/(systemone|decisions|embeddings|rerank|classify)"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501, 504]
"""


async def fuzz(gateway, folder, *options):
    """Run schemathesis against a router; its report is in the message if it finds something."""
    document = (await gateway.http.get("/openapi.json")).json()
    for name in ("ChatRequest", "CompletionRequest", "ResponseRequest", *ENCODERS):
        # Any other model is not found, which would be all that is tested.
        # Encoders need no name where one model is served.
        models = ["m", None] if name in ENCODERS else ["m"]
        document["components"]["schemas"][name]["properties"]["model"] = {"enum": models}
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "schemathesis.toml").write_text(CONFIG)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--no-color"),
        *("--config-file", "schemathesis.toml", "run", "openapi.json"),
        *("--url", str(gateway.http.base_url), "--header", f"Authorization: Bearer {KEY}"),
        *("--continue-on-failure", "--no-shrink", "--request-timeout", "30", *options),
        # What would take the engine away, or bring others that are none.
        *("--exclude-path-regex", "^/workers"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        report, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, report.decode()


async def answered(gateway, route, status):
    """How often a route was answered with a status."""
    name = f'smg_http_responses_total{{route="{route}",status="{status}"}} '
    lines = (await gateway.http.get("/metrics")).text.splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


async def check(echo_worker, folder, *options):
    url = await echo_worker()
    async with running_router(url, callers={"api_key": KEY}) as gateway:
        await fuzz(gateway, folder, *options)
        for route in ("chat", "completions"):
            # The run means nothing unless it has come as far as the engine, and to the refusals.
            assert await answered(gateway, route, 200) >= 20
            assert await answered(gateway, route, 400) >= 20
            assert await answered(gateway, route, 401) >= 1
        # It leaves streams that are long: their sequences end.
        await until(lambda: echo_worker.servers[url].engine.load().running == 0)


@pytest.mark.timeout(180)
async def test_answers_to_requests_from_the_document_are_those_it_names(echo_worker, tmp_path):
    phases = ("--phases", "coverage,fuzzing")
    await check(echo_worker, tmp_path, "--seed", "1", "--max-examples", "5", *phases)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_answers_to_many_more_requests_are_those_it_names(echo_worker, tmp_path):
    await check(echo_worker, tmp_path, "--seed", "2", "--max-examples", "60")
