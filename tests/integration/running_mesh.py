"""deploy/envoy/mesh.yaml on a real Envoy: with certificates and tokens made for it, before gateways with mutual TLS."""

import json
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.certificates import Authority
from tests.integration.running_envoy import address, configuration, running_envoy
from tests.integration.running_router import running_router

ISSUER, GATEWAY = "https://issuer.example.com", "gateway.smg.internal"
# The gateway behind the mesh believes who the mesh says that the caller is.
BEHIND = {"trust_tenant_header": True}


@cache
def signing_key():
    """Made once: the making takes tens of milliseconds."""
    return rsa.generate_private_key(65537, 2048)


def token(subject="alice", audience="smg", key=None, **claims):
    """A token that lasts for an hour."""
    claims = {
        "iss": ISSUER,
        "sub": subject,
        "aud": audience,
        "exp": int(datetime.now(UTC).timestamp()) + 3600,
        **claims,
    }
    return jwt.encode(claims, key or signing_key(), algorithm="RS256", headers={"kid": "k1"})


class Credentials:
    """Everything that mesh.yaml reads from certs/, and what its gateways and clients show and trust."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = Authority(folder)
        self.public = self.authority.issue("public", "localhost", "127.0.0.1")
        self.edge = self.authority.issue("edge", "edge.smg.internal")
        public_key = json.loads(RSAAlgorithm.to_jwk(signing_key().public_key()))
        (folder / "jwks.json").write_text(json.dumps({"keys": [{**public_key, "kid": "k1"}]}))

    def gateway_tls(self, name=GATEWAY):
        """Settings of a gateway that shows a certificate of that name, and wants to see one."""
        shown = self.authority.issue(name, name, "127.0.0.1")
        return {
            "tls_cert_path": shown.certificate,
            "tls_key_path": shown.key,
            "tls_client_ca_paths": (self.authority.path,),
        }

    def trusting(self, shown=None):
        """How clients see whom they speak to."""
        context = ssl.create_default_context(cafile=self.authority.path)
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        return context


def mesh_configuration(credentials, gateways, replace=None):
    """mesh.yaml before these gateways, with health checks that need not be waited for."""
    changed = {
        "filename: certs/": f"filename: {credentials.folder}/",
        "interval: 2s, no_traffic_interval: 2s": "interval: 0.05s, no_traffic_interval: 0.05s",
        **(replace or {}),
    }
    clusters = {
        "gateway": [address(each.target) for each in gateways],
        "gateway_http": [("127.0.0.1", each.addresses.port) for each in gateways],
    }
    return configuration("mesh.yaml", clusters, changed)


@asynccontextmanager
async def running_gateway(credentials, *urls, name=GATEWAY, **settings):
    """A gateway behind the mesh. Its `.http` shows the edge's certificate."""
    context = credentials.trusting(credentials.edge)
    async with running_router(
        *urls, tls=credentials.gateway_tls(name), http_tls=context, callers=BEHIND, **settings
    ) as gateway:
        yield gateway


@asynccontextmanager
async def running_mesh(credentials, gateways, folder, replace=None):
    """`.url` of the mesh, its `.port`, and `.admin`, the address of Envoy's administration."""
    found = mesh_configuration(credentials, gateways, replace)
    async with running_envoy(found, folder) as ports:
        port = ports["https"]
        yield SimpleNamespace(
            url=f"https://localhost:{port}",
            port=port,
            admin=f"http://127.0.0.1:{ports['admin']}",
            context=credentials.trusting(),
        )
