"""How the router connects to workers at grpcs:// addresses: whom it trusts, and what it shows of itself."""

from __future__ import annotations

import asyncio
import ssl
from copy import copy
from typing import TYPE_CHECKING

from smg.tls.files import OLDEST, Identity, TlsFile, load_authorities, load_identity
from smg.tls.reloading import Reloading

if TYPE_CHECKING:
    from smg.settings import TlsSettings

HTTP_2 = "h2"


class WorkerTls:
    """Made once; gives a context to each new connection.

    Attributes:
        server_name: name that certificates of workers must bear; empty for the host of each address.
        files: what the context is made of, to be kept fresh; None until it is made.
    """

    def __init__(self, settings: TlsSettings) -> None:
        """Read what is configured.

        Raises:
            BadTlsFile: with flag and file.
        """
        self.server_name = settings.worker_tls_server_name or ""
        self._authorities = [TlsFile("--ca-cert-paths", path) for path in settings.ca_cert_paths]
        self._identity: Identity | None = None
        if settings.client_cert_path is not None and settings.client_key_path is not None:
            self._identity = Identity(
                TlsFile("--client-cert-path", settings.client_cert_path),
                TlsFile("--client-key-path", settings.client_key_path),
            )
        own = [self._identity.certificate, self._identity.key] if self._identity else []
        self._names = [*self._authorities, *own]
        # The system's authorities take memory and time: they are read when a worker wants them.
        self.files = self._read() if self._names else None

    def named(self, server_name: str) -> WorkerTls:
        """The same for servers whose certificates bear another name."""
        other = copy(self)
        other.server_name = server_name
        return other

    async def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        if self.files is None:
            self.files = await asyncio.to_thread(self._read)
        return self.files.value

    def _read(self) -> Reloading[ssl.SSLContext]:
        return Reloading(self._make, self._names)

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = OLDEST
        context.set_alpn_protocols([HTTP_2])
        if self._authorities:
            load_authorities(context, self._authorities)
        else:
            context.load_default_certs()
        if self._identity is not None:
            load_identity(context, self._identity)
        return context


def handshake_fault(error: OSError) -> str:
    """What went wrong while two sides agreed on encryption, in an operator's words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message} (--ca-cert-paths, --worker-tls-server-name)"
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    reason = (error.reason or str(error)).upper()
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return "the other side does not speak TLS; use grpc:// where it shall not"
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return "it wants a certificate of the router (--client-cert-path, --client-key-path)"
    if "UNKNOWN_CA" in reason or "BAD_CERTIFICATE" in reason or "CERTIFICATE_UNKNOWN" in reason:
        return "it does not trust the router's certificate (--client-cert-path)"
    return f"TLS failed: {reason.replace('_', ' ').lower()}"
