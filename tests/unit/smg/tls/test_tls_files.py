"""Files for TLS: used when they fit, refused with flag and file when not, and read again when they change."""

import os
import ssl
import subprocess
from pathlib import Path

import pytest

from smg.errors import BadTlsFile
from smg.settings import TlsSettings
from smg.tls.listening import listening_tls
from smg.tls.worker import WorkerTls
from tests.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def issued(authority):
    return authority.issue("server", "localhost", "127.0.0.1")


def server(issued, **more):
    return TlsSettings(tls_cert_path=issued.certificate, tls_key_path=issued.key, **more)


def test_without_a_certificate_nothing_is_encrypted():
    assert listening_tls(TlsSettings()) is None


def test_nothing_older_than_tls_1_2_is_spoken(issued):
    for context in (listening_tls(server(issued)).value.context, WorkerTls(TlsSettings())._make()):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_clients_need_a_certificate_only_where_authorities_are_named(issued, authority):
    assert listening_tls(server(issued)).value.context.verify_mode == ssl.CERT_NONE
    tls = listening_tls(server(issued, tls_client_ca_paths=(authority.path,))).value
    assert tls.context.verify_mode == ssl.CERT_REQUIRED
    assert tls.client_authorities.count(b"BEGIN CERTIFICATE") == 1


async def test_workers_are_checked_by_name_and_authority(authority):
    context = await WorkerTls(TlsSettings(ca_cert_paths=(authority.path,))).context()
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.cert_store_stats()["x509_ca"] == 1


def refusal(settings):
    def read():
        listening_tls(settings)
        WorkerTls(settings)

    with pytest.raises(BadTlsFile) as caught:
        read()
    return caught.value.message


def test_a_file_that_is_not_there_is_named_with_its_flag(issued, authority):
    missing = "/nowhere/x.pem"
    cases = {
        "--tls-cert-path": TlsSettings(tls_cert_path=missing, tls_key_path=issued.key),
        "--tls-key-path": TlsSettings(tls_cert_path=issued.certificate, tls_key_path=missing),
        "--tls-client-ca-paths": server(issued, tls_client_ca_paths=(authority.path, missing)),
        "--ca-cert-paths": TlsSettings(ca_cert_paths=(missing,)),
        "--client-cert-path": TlsSettings(client_cert_path=missing, client_key_path=issued.key),
        "--client-key-path": TlsSettings(client_cert_path=issued.certificate, client_key_path=missing),
    }
    for flag, settings in cases.items():
        assert refusal(settings) == f"{flag} '{missing}': cannot be read: No such file or directory"


def test_a_file_of_another_kind_is_told_so(issued, authority, tmp_path):
    swapped = TlsSettings(tls_cert_path=issued.key, tls_key_path=issued.certificate)
    assert refusal(swapped) == f"--tls-cert-path '{issued.key}': holds no PEM certificate"
    no_key = TlsSettings(tls_cert_path=issued.certificate, tls_key_path=authority.path)
    assert refusal(no_key) == f"--tls-key-path '{authority.path}': holds no PEM private key"
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    assert refusal(TlsSettings(ca_cert_paths=(str(broken),))).startswith(
        f"--ca-cert-paths '{broken}': cannot be"
    )
    half = TlsSettings(tls_cert_path=str(broken), tls_key_path=issued.key)
    assert refusal(half).startswith(
        f"--tls-cert-path '{broken}' with --tls-key-path '{issued.key}': cannot be"
    )


def test_a_key_of_another_certificate_is_told_so(issued, authority):
    other = authority.issue("other", "localhost")
    problem = refusal(TlsSettings(tls_cert_path=issued.certificate, tls_key_path=other.key))
    assert (
        problem == f"--tls-key-path '{other.key}': is not the key of --tls-cert-path '{issued.certificate}'"
    )


@pytest.mark.parametrize("program", ["pkey", "ec"], ids=["pkcs8", "traditional"])
def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(issued, tmp_path, program):
    locked = tmp_path / "locked.key"
    words = ["openssl", program, "-in", issued.key, "-aes128", "-passout", "pass:x", "-out", str(locked)]
    subprocess.run(words, check=True, capture_output=True)
    problem = refusal(TlsSettings(tls_cert_path=issued.certificate, tls_key_path=str(locked)))
    assert problem == f"--tls-key-path '{locked}': the key is encrypted; a key without a password is needed"


def touch(*paths):
    """Make files look changed whatever the clock's resolution."""
    for path in paths:
        status = Path(path).stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


def test_files_are_read_again_when_they_have_changed(authority):
    issued = authority.issue("changing", "localhost")
    tls = listening_tls(server(issued))
    before = tls.value
    assert not tls.refresh()
    assert tls.value is before
    authority.issue("changing", "localhost")
    touch(issued.certificate)
    assert tls.refresh()
    assert tls.value.certificate == Path(issued.certificate).read_bytes() != before.certificate


def test_a_change_that_cannot_be_used_is_told_once_and_the_former_stay(authority, caplog):
    issued = authority.issue("spoilt", "localhost")
    tls = listening_tls(server(issued))
    before = tls.value
    Path(issued.key).write_text("")
    assert not tls.refresh()
    assert not tls.refresh()
    assert tls.value is before
    [record] = caplog.records
    assert issued.key in record.message
    authority.issue("spoilt", "localhost")
    touch(issued.certificate, issued.key)
    assert tls.refresh()


def test_a_link_that_points_elsewhere_is_a_change(authority, tmp_path):
    """Kubernetes renews mounted secrets so."""
    first, second = (authority.issue(name, "localhost") for name in ("first", "second"))
    for name, target in (("c.pem", first.certificate), ("c.key", first.key)):
        (tmp_path / name).symlink_to(target)
    tls = listening_tls(
        TlsSettings(tls_cert_path=str(tmp_path / "c.pem"), tls_key_path=str(tmp_path / "c.key"))
    )
    for name, target in (("c.pem", second.certificate), ("c.key", second.key)):
        (tmp_path / f"{name}.new").symlink_to(target)
        (tmp_path / f"{name}.new").rename(tmp_path / name)
    assert tls.refresh()
    assert tls.value.certificate == Path(second.certificate).read_bytes()
