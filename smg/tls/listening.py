"""What a listener shows to clients, and what it wants to see of them."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from smg.tls.files import OLDEST, Identity, TlsFile, load_authorities, load_identity
from smg.tls.reloading import Reloading

if TYPE_CHECKING:
    from smg.settings import TlsSettings


class ListeningTls(NamedTuple):
    """Everything that a handshake needs, for a listener of Python's and for one of gRPC's.

    Attributes:
        context: for HTTP/1.1.
        certificate: PEM, with its chain.
        key: PEM.
        client_authorities: PEM; empty when clients need no certificate.
    """

    context: ssl.SSLContext
    certificate: bytes
    key: bytes
    client_authorities: bytes


def listening_tls(settings: TlsSettings) -> Reloading[ListeningTls] | None:
    """What the settings ask for; None for no encryption.

    Raises:
        BadTlsFile: with flag and file.
    """
    if settings.tls_cert_path is None or settings.tls_key_path is None:
        return None
    identity = Identity(
        TlsFile("--tls-cert-path", settings.tls_cert_path), TlsFile("--tls-key-path", settings.tls_key_path)
    )
    authorities = [TlsFile("--tls-client-ca-paths", path) for path in settings.tls_client_ca_paths]

    def make() -> ListeningTls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = OLDEST
        context.set_alpn_protocols(["http/1.1"])
        pair = load_identity(context, identity)
        trusted = load_authorities(context, authorities)
        if authorities:
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed session would not look at the client's certificate again.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return ListeningTls(context, *pair, trusted)

    return Reloading(make, [identity.certificate, identity.key, *authorities])
