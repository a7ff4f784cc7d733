"""The section `mesh`: what the router tells Envoy of itself, of its peers and of the engines."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from smg.settings.fields import Section, WorkerUrls, setting


class MeshSettings(Section):
    """Endpoint discovery for Envoy (xDS, state of the world) on the gRPC port: deploy/envoy/eds.yaml."""

    endpoint_discovery: bool = setting(
        False, "Tell Envoy where routers and engines are, and whenever that changes."
    )
    endpoint_routers: WorkerUrls = setting(
        (),
        "gRPC addresses of all routers, this one's included; every address of a name is a router.",
        metavar="GRPC://HOST:PORT",
    )
    endpoint_streams: int = setting(
        1000, "Envoys that may be told at a time; further ones are refused.", ge=1
    )

    @model_validator(mode="after")
    def _is_used(self) -> Self:
        if self.endpoint_routers and not self.endpoint_discovery:
            raise ValueError("endpoint_routers mean nothing without endpoint_discovery")
        return self
