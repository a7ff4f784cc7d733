"""A real Envoy with one of our configurations, on free ports, in front of a gateway that a test runs."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy" / "envoy"
ENVOY = Path(sys.executable).with_name("envoy")


def configuration(name, clusters, replace=None):
    """One of our files, listening on free ports of the loopback address.

    Args:
        name: of the file.
        clusters: by name, the addresses of its endpoints.
        replace: texts to put in the place of others, in the file as it is.
    """
    text = (DEPLOY / name).read_text()
    for old, new in {"smg_edge.pb": str(DEPLOY / "smg_edge.pb"), **(replace or {})}.items():
        assert old in text
        text = text.replace(old, str(new))
    found = yaml.safe_load(text)
    found["admin"]["address"] = _socket("127.0.0.1", 0)
    for listener in found["static_resources"]["listeners"]:
        listener["address"] = _socket("127.0.0.1", 0)
    for cluster in found["static_resources"]["clusters"]:
        addresses = clusters.get(cluster["name"])
        if addresses is not None:
            endpoints = [{"endpoint": {"address": _socket(*address)}} for address in addresses]
            cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": endpoints}]
    return found


def _socket(host, port):
    return {"socket_address": {"address": host, "port_value": port}}


def address(target):
    """Host and port of "host:port"."""
    host, _, port = target.rpartition(":")
    return host, int(port)


@asynccontextmanager
async def running_envoy(found, folder):
    """Ports of its listeners by name, once it is live; ended at the end."""
    config, admin_file, log = folder / "envoy.json", folder / "admin", folder / "envoy.log"
    config.write_text(json.dumps(found))
    process = await asyncio.create_subprocess_exec(
        *(str(ENVOY), "-c", str(config), "--admin-address-path", str(admin_file), "--log-path", str(log)),
        *("--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn", "--drain-time-s", "1"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield await _ports(process, admin_file, log)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _ports(process, admin_file, log):
    while not admin_file.exists() or not admin_file.read_text():
        assert process.returncode is None, log.read_text()
        await asyncio.sleep(0.01)
    async with httpx.AsyncClient(base_url=f"http://{admin_file.read_text()}") as admin:
        while (await admin.get("/ready")).status_code != 200:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        listeners = (await admin.get("/listeners?format=json")).json()["listener_statuses"]
    _, port = address(admin_file.read_text())
    ports = {each["name"]: each["local_address"]["socket_address"]["port_value"] for each in listeners}
    return {**ports, "admin": port}
