"""Puts certificates and authorities from PEM files into a context; what is wrong is told with flag and file.

TLS 1.2 is the oldest version that is spoken: Python's default since 3.10, set here all the same.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from smg.errors import BadTlsFile

if TYPE_CHECKING:
    from collections.abc import Sequence

OLDEST = ssl.TLSVersion.TLSv1_2
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"
_ENCRYPTED = b"ENCRYPTED"


@dataclass(frozen=True, slots=True)
class TlsFile:
    """A file and the flag that names it."""

    flag: str
    path: str

    def __str__(self) -> str:
        return f"{self.flag} '{self.path}'"

    def read(self) -> bytes:
        """The content.

        Raises:
            BadTlsFile: it cannot be read.
        """
        try:
            return Path(self.path).read_bytes()
        except OSError as error:
            raise BadTlsFile(f"{self}: cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate, with the chain that vouches for it, and its private key."""

    certificate: TlsFile
    key: TlsFile


def load_identity(context: ssl.SSLContext, identity: Identity) -> tuple[bytes, bytes]:
    """Make a context show a certificate. Returns the PEM text of certificate and key.

    Raises:
        BadTlsFile: a file cannot be read or is of another kind, or the two do not belong together.
    """
    certificate, key = identity.certificate.read(), identity.key.read()
    if _CERTIFICATE not in certificate:
        raise BadTlsFile(f"{identity.certificate}: holds no PEM certificate")
    if _KEY not in key:
        raise BadTlsFile(f"{identity.key}: holds no PEM private key")
    if _ENCRYPTED in key:
        raise BadTlsFile(f"{identity.key}: the key is encrypted; a key without a password is needed")
    try:
        context.load_cert_chain(identity.certificate.path, identity.key.path, password=_no_password)
    except ssl.SSLError as error:
        if error.reason and "MISMATCH" in error.reason:
            raise BadTlsFile(f"{identity.key}: is not the key of {identity.certificate}") from error
        raise BadTlsFile(f"{identity.certificate} with {identity.key}: {_reason(error)}") from error
    return certificate, key


def load_authorities(context: ssl.SSLContext, files: Sequence[TlsFile]) -> bytes:
    """Make a context trust the authorities of some files. Returns their PEM text.

    Raises:
        BadTlsFile: a file cannot be read or holds no certificate.
    """
    texts: list[bytes] = []
    for file in files:
        text = file.read()
        if _CERTIFICATE not in text:
            raise BadTlsFile(f"{file}: holds no PEM certificate")
        try:
            context.load_verify_locations(cadata=text.decode("ascii", "replace"))
        except ssl.SSLError as error:
            raise BadTlsFile(f"{file}: {_reason(error)}") from error
        texts.append(text)
    return b"\n".join(texts)


def _reason(error: ssl.SSLError) -> str:
    return f"cannot be used: {(error.reason or str(error)).replace('_', ' ').lower()}"


def _no_password() -> NoReturn:
    # Without this OpenSSL would ask on the terminal, and wait.
    raise BadTlsFile("the key is encrypted; a key without a password is needed")
