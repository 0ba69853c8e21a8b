"""Certificates that TLS accepts, from the right authority only; keys that nobody else can read."""

import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedcommons.errors import FederationError
from fedcommons.federate.deploy import certificates
from fedcommons.federate.deploy.certificates import (
    AUTHORITY_DAYS,
    SERVER_DAYS,
    days_left,
    expiring,
    renew_tls,
    write_node_key,
    write_tls,
)


def shake_hands(tls, authority, name):
    """A TLS handshake with a server that has these files, by a client that trusts `authority`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tls.certificate, tls.key)
    client = ssl.create_default_context(cafile=str(authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def answer():
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        client.wrap_socket(ours, server_hostname=name).close()
    finally:
        ours.close()
        thread.join(10)


@pytest.mark.parametrize("name", ["federation.example.org", "192.0.2.7", "localhost", "127.0.0.1"])
def test_a_certificate_is_for_its_hosts_and_loopback(tmp_path, name):
    tls = write_tls(tmp_path, ["federation.example.org", "192.0.2.7"])
    shake_hands(tls, tls.ca, name)


def test_another_host_and_another_authority_are_refused(tmp_path):
    tls, other = write_tls(tmp_path / "ours"), write_tls(tmp_path / "theirs")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tls, tls.ca, "elsewhere.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tls, other.ca, "localhost")


def read(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_certificates_say_what_they_are_for(tmp_path):
    tls = write_tls(tmp_path, ["federation.example.org", "192.0.2.7"])
    authority, *servers = map(read, tls.certificates)
    for certificate in servers:
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical
        assert usage.value.digital_signature
        assert not usage.value.key_cert_sign
        extended = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(extended) == [ExtendedKeyUsageOID.SERVER_AUTH]
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert certificate.not_valid_after_utc <= authority.not_valid_after_utc
        certificate.verify_directly_issued_by(authority)
    usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert not usage.digital_signature
    assert [days_left(one) for one in servers] == [SERVER_DAYS - 1, AUTHORITY_DAYS - 1]


def test_the_superlinks_certificate_is_for_loopback_alone(tmp_path):
    tls = write_tls(tmp_path, ["federation.example.org"])
    names = read(tls.superlink_certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["localhost"]
    assert list(map(str, names.value.get_values_for_type(x509.IPAddress))) == ["127.0.0.1"]


def test_renewing_keeps_hosts_the_authority_and_the_superlinks_certificate(tmp_path):
    first = write_tls(tmp_path, ["federation.example.org", "192.0.2.7"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert renew_tls(tmp_path)
    changed = {path.name for path in tmp_path.iterdir() if path.read_bytes() != before[path.name]}
    assert changed == {"server.pem", "server.key"}
    shake_hands(first, first.ca, "federation.example.org")
    shake_hands(first, first.ca, "192.0.2.7")


def test_a_certificate_is_renewed_when_few_days_are_left(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "SERVER_DAYS", 20)
    tls = write_tls(tmp_path)
    assert expiring(tmp_path) == [f"{tls.certificate} expires in 19 days"]
    monkeypatch.setattr(certificates, "SERVER_DAYS", 397)
    assert not renew_tls(tmp_path, within_days=19)
    assert renew_tls(tmp_path, within_days=20)
    assert expiring(tmp_path) == []
    assert not renew_tls(tmp_path, within_days=60)


def test_what_has_expired_is_said_and_signs_nothing_more(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "AUTHORITY_DAYS", 0)
    with pytest.raises(FederationError, match=r"ca\.pem has expired"):
        write_tls(tmp_path)


def test_only_what_was_made_is_renewed(tmp_path):
    with pytest.raises(FederationError, match=r"server\.pem cannot be read: No such file"):
        renew_tls(tmp_path)


def test_half_an_authority_is_refused(tmp_path):
    write_tls(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(FederationError, match=r"both ca\.pem and ca\.key"):
        write_tls(tmp_path)


def test_a_damaged_authority_is_named(tmp_path):
    write_tls(tmp_path)
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    with pytest.raises(FederationError, match=r"ca\.pem is damaged"):
        write_tls(tmp_path)
    (tmp_path / "ca.key").write_text("-----BEGIN PRIVATE KEY-----")
    write_tls(tmp_path / "other").ca.rename(tmp_path / "ca.pem")
    with pytest.raises(FederationError, match=r"ca\.key is damaged"):
        write_tls(tmp_path)


def test_a_long_name_is_a_name(tmp_path):
    name = f"{'a' * 60}.{'b' * 60}.example.org"
    tls = write_tls(tmp_path, [name])
    shake_hands(tls, tls.ca, name)


def test_a_public_key_is_never_replaced(tmp_path):
    write_node_key(tmp_path / "node.key")
    with pytest.raises(FederationError, match=r"node\.pub exists already"):
        write_node_key(tmp_path / "node.other")


def test_private_keys_are_for_their_owner_alone(tmp_path):
    tls = write_tls(tmp_path / "tls")
    write_node_key(tmp_path / "node.key")
    for path in (tls.key, tls.ca_key, tls.superlink_key, tmp_path / "node.key"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_node_key_is_a_p384_pair_in_openssh_format_and_never_replaced(tmp_path):
    public = write_node_key(tmp_path / "node.key")
    private = serialization.load_ssh_private_key((tmp_path / "node.key").read_bytes(), None)
    assert isinstance(private.curve, ec.SECP384R1)
    assert serialization.load_ssh_public_key(public.read_bytes()) == private.public_key()
    with pytest.raises(FederationError, match="keeps its key"):
        write_node_key(tmp_path / "node.key")
