"""Gives a certificate to gRPC's own listener, the newest one to each handshake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from smg.tls.listening import ListeningTls
    from smg.tls.reloading import Reloading

_grpc: Any = grpc


def server_credentials(tls: Reloading[ListeningTls]) -> grpc.ServerCredentials:
    """Credentials that follow the files. gRPC asks from a thread of its own, before each handshake."""
    told = tls.value

    def changed() -> Any:
        nonlocal told
        now = tls.value
        if now is told:
            return None
        told = now
        return _configuration(now)

    return _grpc.dynamic_ssl_server_credentials(
        _configuration(told), changed, require_client_authentication=bool(told.client_authorities)
    )


def _configuration(tls: ListeningTls) -> Any:
    pairs = ((tls.key, tls.certificate),)
    return _grpc.ssl_server_certificate_configuration(pairs, tls.client_authorities or None)
