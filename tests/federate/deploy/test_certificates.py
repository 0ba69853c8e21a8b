"""Certificates that TLS accepts, from the right authority only; keys that nobody else can read."""

import socket
import ssl
import threading

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedcommons.errors import FederationError
from fedcommons.federate.deploy.certificates import write_node_key, write_tls


def shake_hands(tls, authority, name):
    """A TLS handshake with a server that has these files, by a client that trusts `authority`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tls.certificate, tls.key)
    client = ssl.create_default_context(cafile=str(authority))
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


def test_renewing_keeps_the_authority(tmp_path):
    first = write_tls(tmp_path)
    authority, certificate = first.ca.read_bytes(), first.certificate.read_bytes()
    again = write_tls(tmp_path)
    assert again.ca.read_bytes() == authority
    assert again.certificate.read_bytes() != certificate
    shake_hands(again, again.ca, "localhost")


def test_half_an_authority_is_refused(tmp_path):
    write_tls(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(FederationError, match=r"both ca\.pem and ca\.key"):
        write_tls(tmp_path)


def test_a_damaged_authority_is_named(tmp_path):
    write_tls(tmp_path)
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    with pytest.raises(FederationError, match=r"ca\.pem or ca\.key in .* is damaged"):
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
    for path in (tls.key, tls.ca.with_suffix(".key"), tmp_path / "node.key"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_node_key_is_a_p384_pair_in_openssh_format_and_never_replaced(tmp_path):
    public = write_node_key(tmp_path / "node.key")
    private = serialization.load_ssh_private_key((tmp_path / "node.key").read_bytes(), None)
    assert isinstance(private.curve, ec.SECP384R1)
    assert serialization.load_ssh_public_key(public.read_bytes()) == private.public_key()
    with pytest.raises(FederationError, match="keeps its key"):
        write_node_key(tmp_path / "node.key")
