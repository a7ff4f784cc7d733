"""The OpenAI SDK before a gateway: at its own listener, behind an Envoy, and behind a mesh's edge."""

from contextlib import asynccontextmanager

import openai

from tests.integration.running_envoy import address, configuration, running_envoy
from tests.integration.running_mesh import Credentials, running_gateway, running_mesh, token
from tests.integration.running_router import running_router


@asynccontextmanager
async def at_listener(url, folder, **settings):
    """Plain HTTP to the gateway's own port."""
    async with running_router(url, **settings) as gateway, sdk(gateway.http.base_url) as client:
        yield client


@asynccontextmanager
async def behind_envoy(url, folder, **settings):
    """HTTP to an Envoy that speaks nothing but gRPC to the gateway."""
    async with running_router(url, **settings) as gateway:
        found = configuration("edge.yaml", {"gateway": [address(gateway.target)]})
        async with (
            running_envoy(found, folder) as ports,
            sdk(f"http://127.0.0.1:{ports['http']}") as client,
        ):
            yield client


@asynccontextmanager
async def behind_mesh(url, folder, **settings):
    """TLS, and a token for a key; the mesh's edge and the gateway show each other certificates."""
    credentials = Credentials(folder / "certs")
    async with (
        running_gateway(credentials, url, **settings) as gateway,
        running_mesh(credentials, [gateway], folder) as mesh,
        sdk(mesh.url, token(), http_client=openai.DefaultAsyncHttpxClient(verify=mesh.context)) as client,
    ):
        yield client


DOORS = {"listener": at_listener, "envoy": behind_envoy, "mesh": behind_mesh}


def sdk(base_url, api_key="k", **options):
    """The client, which tries nothing again."""
    return openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key=api_key, max_retries=0, **options)
