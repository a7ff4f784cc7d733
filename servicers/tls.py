"""Gives a servicer's listener its certificate, and the newest one to each handshake when the files change.

TLS 1.2 is the oldest version that gRPC speaks.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from servicers.base import CannotStart

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
_grpc: Any = grpc

# Longest time a router may take to agree on encryption.
HANDSHAKE_S = 10.0
# Looks at the files are no closer than this.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files.

    Attributes:
        certificate: shown to routers, with its chain.
        key: its private key.
        client_authorities: a router must show a certificate that one of them signed; empty: it need not.
    """

    certificate: str
    key: str
    client_authorities: tuple[str, ...] = ()

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Changes when a file does. A file that is gone changes nothing until it is back."""
        marks: list[tuple[int, int, int]] = []
        for path in (self.certificate, self.key, *self.client_authorities):
            try:
                status = Path(path).stat()
            except OSError:
                marks.append((0, 0, 0))
            else:
                marks.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(marks)


def server_credentials(files: TlsFiles, now: Callable[[], float] = time.monotonic) -> grpc.ServerCredentials:
    """Credentials that follow the files. gRPC asks from a thread of its own, before each handshake.

    Raises:
        CannotStart: with the flag and the file that cannot be used.
    """
    lock = threading.Lock()
    stamp, looked_at = files.stamp(), now()
    first = _configuration(files)

    def changed() -> Any:
        nonlocal stamp, looked_at
        with lock:
            if now() - looked_at < LOOK_S:
                return None
            looked_at = now()
            seen = files.stamp()
            if seen == stamp:
                return None
            stamp = seen
            try:
                configuration = _configuration(files)
            except CannotStart as fault:
                _log.error("changed files for TLS cannot be used, the former stay in use: %s", fault)
                return None
            _log.info("%s was read again", files.certificate)
            return configuration

    return _grpc.dynamic_ssl_server_credentials(
        first, changed, require_client_authentication=bool(files.client_authorities)
    )


def _configuration(files: TlsFiles) -> Any:
    """What gRPC takes. It would tell of bad files by a crash of its handshakes: Python looks at them first."""
    certificate = _read("--tls-cert-path", files.certificate, b"BEGIN CERTIFICATE")
    key = _read("--tls-key-path", files.key, b"PRIVATE KEY")
    if b"ENCRYPTED" in key:
        raise CannotStart(
            f"--tls-key-path '{files.key}': the key is encrypted; a key without a password is needed"
        )
    authorities = [
        _read("--tls-client-ca-paths", path, b"BEGIN CERTIFICATE") for path in files.client_authorities
    ]
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key)
    except (ssl.SSLError, OSError) as error:
        raise CannotStart(
            f"--tls-key-path '{files.key}' and --tls-cert-path '{files.certificate}' do not go together: {error}"
        ) from error
    pairs = ((key, certificate),)
    return _grpc.ssl_server_certificate_configuration(pairs, b"\n".join(authorities) or None)


def _read(flag: str, path: str, mark: bytes) -> bytes:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise CannotStart(f"{flag} '{path}': cannot be read: {error.strerror}") from error
    if mark not in text:
        raise CannotStart(f"{flag} '{path}': holds no PEM {mark.removeprefix(b'BEGIN ').decode().lower()}")
    return text
