"""The section `tls`: certificates, keys and authorities. Files are read at the start, and again when they change."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from smg.settings.fields import Section, setting


class TlsSettings(Section):
    """Encryption: towards clients over HTTP and gRPC alike, and towards workers at grpcs:// addresses."""

    tls_cert_path: str | None = setting(
        None, "Certificate of this server, PEM, the whole chain. Default: no encryption.", metavar="FILE"
    )
    tls_key_path: str | None = setting(None, "Private key of that certificate, PEM.", metavar="FILE")
    tls_client_ca_paths: tuple[str, ...] = setting(
        (), "Authorities, PEM; clients must show a certificate that one of them signed.", metavar="FILE"
    )
    tls_handshake_timeout_secs: float = setting(
        10.0, "Longest time a client may take to agree on encryption.", gt=0
    )
    ca_cert_paths: tuple[str, ...] = setting(
        (), "Authorities that vouch for workers, PEM. Default: those of the system.", metavar="FILE"
    )
    client_cert_path: str | None = setting(
        None, "Certificate to show to workers that ask for one, PEM.", metavar="FILE"
    )
    client_key_path: str | None = setting(None, "Private key of that certificate, PEM.", metavar="FILE")
    worker_tls_server_name: str | None = setting(
        None, "Name that workers' certificates must bear. Default: the host of each address.", metavar="NAME"
    )

    @model_validator(mode="after")
    def _pairs_are_whole(self) -> Self:
        for cert, key in (("tls_cert_path", "tls_key_path"), ("client_cert_path", "client_key_path")):
            if (getattr(self, cert) is None) != (getattr(self, key) is None):
                given, missing = (cert, key) if getattr(self, cert) else (key, cert)
                raise ValueError(
                    f"{_flag(given)} needs {_flag(missing)}: a certificate and its key belong together"
                )
        if self.tls_client_ca_paths and self.tls_cert_path is None:
            raise ValueError("--tls-client-ca-paths needs --tls-cert-path and --tls-key-path")
        return self


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
