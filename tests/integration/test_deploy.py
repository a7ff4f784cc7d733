"""What deploy/ hands to other programs is run: the health check of the engine's image, and Envoy as the chart has it."""

import asyncio
import base64
import subprocess
import sys

import httpx
import yaml

from scripts.write_deploy import DEPLOY, render, values_of
from tests.integration.running_envoy import ENVOY, configuration, running_envoy
from tests.integration.running_router import running_router

HEALTH = DEPLOY / "docker" / "engine_health.py"


def envoy_of_the_chart():
    """Its ConfigMap and its Deployment."""
    found = list(yaml.safe_load_all(render(values_of("everything"))["envoy.yaml"]))
    return found[0], found[1]


async def status_of(*command):
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return await process.wait()


async def served_until_nobody_listens(client):
    """A connection that was taken while the listener closed may be reset; every answer that comes is a whole one."""
    while True:
        try:
            response = await client.get("/v1/models", headers={"connection": "close"})
        except httpx.ConnectError:
            return
        except httpx.TransportError:
            continue
        assert response.status_code == 200


async def test_the_health_check_of_the_engine_s_image_tells_engines_that_serve(echo_worker):
    url = await echo_worker()
    target = url.removeprefix("grpc://")
    assert await status_of(sys.executable, HEALTH, target) == 0
    await echo_worker.stop(url)
    assert await status_of(sys.executable, HEALTH, target) == 1


async def test_envoy_takes_the_configuration_that_the_chart_gives_it(tmp_path):
    config, deployment = envoy_of_the_chart()
    (tmp_path / "envoy.yaml").write_text(config["data"]["envoy.yaml"])
    (tmp_path / "smg_edge.pb").write_bytes(base64.b64decode(config["binaryData"]["smg_edge.pb"]))
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    arguments = [each.replace("/etc/envoy", str(tmp_path)) for each in container["args"]]
    process = await asyncio.create_subprocess_exec(
        ENVOY, *arguments, "--mode", "validate", cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


async def test_the_hook_before_the_end_of_envoy_s_pod_drains_it(echo_worker, tmp_path):
    _, deployment = envoy_of_the_chart()
    hook = deployment["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    async with running_router(await echo_worker()) as gateway:
        host, _, port = gateway.target.rpartition(":")
        found = configuration("edge.yaml", {"gateway": [(host, int(port))]})
        async with running_envoy(found, tmp_path) as ports:
            client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports['http']}", verify=False)
            async with client:
                assert (await client.get("/v1/models")).status_code == 200
                script = hook[2].replace("/127.0.0.1/9901", f"/127.0.0.1/{ports['admin']}")
                script, pause = script.rsplit("sleep ", 1)
                assert int(pause) > 0
                assert await status_of(*hook[:2], script) == 0
                await served_until_nobody_listens(client)
