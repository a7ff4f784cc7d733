"""Certificates for tests of TLS: authorities, and certificates that they sign, as files."""

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Issued:
    """PEM files of one certificate and its key."""

    certificate: str
    key: str

    def private_text(self) -> str:
        """A line of the key, which must not be seen anywhere."""
        return Path(self.key).read_text().splitlines()[1]


class Authority:
    """An authority in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._ca = trustme.CA()
        self.path = str(directory / "ca.pem")
        self._ca.cert_pem.write_to_path(self.path)

    def text(self) -> bytes:
        """The authority's own certificate, PEM."""
        return Path(self.path).read_bytes()

    def issue(self, name: str, *hosts: str) -> Issued:
        """Sign a certificate for hosts, and write it over the former one of that name."""
        issued = self._ca.issue_cert(*hosts)
        files = Issued(str(self._directory / f"{name}.pem"), str(self._directory / f"{name}.key"))
        issued.private_key_pem.write_to_path(files.key)
        text = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        Path(files.certificate).write_bytes(text)
        return files
