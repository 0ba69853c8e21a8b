"""Files for TLS and node authentication: an authority, server certificates, SuperNode keys."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedcommons.errors import ArgumentError, FederationError

AUTHORITY_DAYS, SERVER_DAYS = 3650, 397
DNS_NAME = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Tls:
    """A server's files for TLS; only `ca` is given to the sites."""

    ca: Path
    certificate: Path
    key: Path


def write_tls(folder: Path, hosts: Sequence[str] = ()) -> Tls:
    """Write a certificate for these hosts and loopback, signed by the authority in `folder`.

    The authority is `ca.pem` and `ca.key`; it is made if the folder has none, and kept for later
    certificates. `server.pem` and `server.key` are replaced.
    """
    names = [_name(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _write_tls(folder, names)
    except OSError as error:
        raise FederationError(f"{folder} cannot be written: {error}") from None


def _write_tls(folder: Path, names: list[x509.GeneralName]) -> Tls:
    tls = Tls(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_key_file = folder / "ca.key"
    if tls.ca.exists() != ca_key_file.exists():
        raise FederationError(f"{folder} must hold both ca.pem and ca.key, or neither")
    if not tls.ca.exists():
        _make_authority(tls.ca, ca_key_file)
    try:
        authority = x509.load_pem_x509_certificate(tls.ca.read_bytes())
        ca_key = serialization.load_pem_private_key(ca_key_file.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise FederationError(f"ca.pem or ca.key in {folder} is damaged: {error}") from None
    if (
        not isinstance(ca_key, ec.EllipticCurvePrivateKey)
        or ca_key.public_key() != authority.public_key()
    ):
        raise FederationError(f"{ca_key_file} must be the elliptic-curve key of ca.pem")
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        # A common name has 64 characters at most; the hosts are in the alternative names.
        _certificate("fedcommons server", key.public_key(), authority.subject, SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA384())
    )
    _write_key(tls.key, key)
    tls.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return tls


def write_node_key(path: Path) -> Path:
    """Write a SuperNode's P-384 key in OpenSSH format; the path of the public half beside it."""
    if not path.name or path.suffix == ".pub":
        raise ArgumentError(f"the private key's file must not end in .pub, got {str(path)!r}")
    public = path.with_suffix(".pub")
    key = ec.generate_private_key(ec.SECP384R1())
    encoded = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    try:
        for file in (path, public):
            if os.path.lexists(file):
                raise FederationError(
                    f"{file} exists already: a SuperNode keeps its key, so choose another file"
                )
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_key(path, key, serialization.PrivateFormat.OpenSSH)
        public.write_bytes(encoded)
    except OSError as error:
        raise FederationError(f"{path} cannot be written: {error}") from None
    return public


def _make_authority(certificate_file: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key()
    subject = _common_name("fedcommons authority")
    usage = dict.fromkeys(KEY_USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
    certificate = (
        _certificate("fedcommons authority", public, subject, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA384())
    )
    _write_key(key_file, key)
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


KEY_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def _certificate(
    name: str, key: ec.EllipticCurvePublicKey, issuer: x509.Name, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not DNS_NAME.fullmatch(host):
        raise ArgumentError(
            "host must be an address or a name in ASCII (xn--... for others) of at most 252 "
            f"characters, got {host!r}"
        )
    return x509.DNSName(host)


def _write_key(
    path: Path,
    key: ec.EllipticCurvePrivateKey,
    form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> None:
    """Write a file that only its owner may read, from the first byte on."""
    encoded = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encoded)
