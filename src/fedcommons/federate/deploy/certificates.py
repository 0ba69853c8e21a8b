"""Files for TLS and node authentication: an authority, server certificates, SuperNode keys."""

from __future__ import annotations

import datetime
import ipaddress
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol.durable import write_file

AUTHORITY_DAYS, SERVER_DAYS = 3650, 397
WARN_DAYS = 30  # a certificate that has fewer days left is warned about
DNS_NAME = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Tls:
    """A server's files for TLS, all in one folder; only `ca` is given to the sites.

    The SuperLink has a certificate of its own, for loopback alone, which lasts as long as the
    authority: so it need not be restarted when the one that sites see is renewed.
    """

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def certificate(self) -> Path:
        """What sites see: it is for the server's names."""
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    @property
    def superlink_certificate(self) -> Path:
        return self.folder / "superlink.pem"

    @property
    def superlink_key(self) -> Path:
        return self.folder / "superlink.key"

    @property
    def certificates(self) -> tuple[Path, Path, Path]:
        return self.ca, self.certificate, self.superlink_certificate


def write_tls(folder: Path, hosts: Sequence[str] = ()) -> Tls:
    """Write a certificate for these hosts and loopback, signed by the authority in `folder`.

    The authority is `ca.pem` and `ca.key`; it is made if the folder has none, and kept for later
    certificates, as is that of the SuperLink. `server.pem` and `server.key` are replaced.
    """
    return _write_tls(Tls(folder), _names(hosts))


def renew_tls(folder: Path, *, within_days: int | None = None) -> bool:
    """Replace the server's certificate by one for the same hosts, from the same authority.

    With `within_days` only if it has fewer days left. Whether it was replaced.
    """
    tls = Tls(folder)
    old = _read_certificate(tls.certificate)
    if within_days is not None and days_left(old) >= within_days:
        return False
    try:
        names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise FederationError(f"{tls.certificate} must be for hosts, but names none") from None
    _write_tls(tls, list(names))
    return True


def expiries(folder: Path) -> dict[Path, datetime.datetime]:
    """When each certificate of a folder of `write_tls` expires."""
    files = Tls(folder).certificates
    return {path: _read_certificate(path).not_valid_after_utc for path in files}


def is_for(path: Path, host: str) -> bool:
    """Whether a certificate is for this address or name, as those who connect compare it."""
    extensions = _read_certificate(path).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    try:
        return ipaddress.ip_address(host) in names.get_values_for_type(x509.IPAddress)
    except ValueError:
        known = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
        return not known.isdisjoint((host.lower(), f"*.{host.lower().partition('.')[2]}"))


def days_left(certificate: x509.Certificate) -> int:
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return math.floor(left / datetime.timedelta(days=1))


def expiring(folder: Path, within_days: int = WARN_DAYS) -> list[str]:
    """What is to be warned about: certificates with fewer days left, in words."""
    return [
        f"{path} expires in {days} days" if days >= 0 else f"{path} has expired"
        for path in Tls(folder).certificates
        if (days := days_left(_read_certificate(path))) < within_days
    ]


def _write_tls(tls: Tls, names: list[x509.GeneralName]) -> Tls:
    try:
        tls.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise FederationError(f"{tls.folder} cannot be written: {error}") from None
    if tls.ca.exists() != tls.ca_key.exists():
        raise FederationError(f"{tls.folder} must hold both ca.pem and ca.key, or neither")
    if not tls.ca.exists():
        _make_authority(tls)
    authority = _Authority.read(tls)
    if not (tls.superlink_certificate.exists() and tls.superlink_key.exists()):
        authority.certify(_names(()), tls.superlink_certificate, tls.superlink_key, AUTHORITY_DAYS)
    authority.certify(names, tls.certificate, tls.key, SERVER_DAYS)
    return tls


@dataclass(frozen=True, slots=True)
class _Authority:
    """The federation's own certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def read(cls, tls: Tls) -> _Authority:
        certificate = _read_certificate(tls.ca)
        try:
            key = serialization.load_pem_private_key(tls.ca_key.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise FederationError(f"{tls.ca_key} is damaged: {error}") from None
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != certificate.public_key()
        ):
            raise FederationError(f"{tls.ca_key} must be the elliptic-curve key of ca.pem")
        if days_left(certificate) < 0:
            raise FederationError(f"{tls.ca} has expired: make a new authority in another folder")
        return cls(certificate, key)

    def certify(
        self, names: list[x509.GeneralName], certificate_file: Path, key_file: Path, days: int
    ) -> None:
        """Make a key and its certificate, which does not outlast the authority's own.

        The key has 256 bits: a server signs with it at every handshake, also with strangers.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        ours, usage = self.key.public_key(), KEY_USAGES | {"digital_signature": True}
        certificate = (
            # A common name has 64 characters at most; the hosts are in the alternative names.
            _certificate(
                "fedcommons server",
                key.public_key(),
                self.certificate.subject,
                until=min(_in_days(days), self.certificate.not_valid_after_utc),
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
            .sign(self.key, hashes.SHA384())
        )
        _write_key(key_file, key)
        _write_certificate(certificate_file, certificate)


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


def write_public_half(path: Path) -> Path:
    """Write the public half of a SuperNode's key beside it once more."""
    public = path.with_suffix(".pub")
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None).public_key()
        form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        public.write_bytes(key.public_bytes(*form))
    except OSError as error:
        raise FederationError(f"{public} cannot be written: {error}") from None
    except ValueError as error:
        raise FederationError(f"{path} is damaged: {error}") from None
    return public


def _make_authority(tls: Tls) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key()
    name, usage = "fedcommons authority", KEY_USAGES | {"key_cert_sign": True, "crl_sign": True}
    certificate = (
        _certificate(name, public, _common_name(name), until=_in_days(AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA384())
    )
    _write_key(tls.ca_key, key)
    _write_certificate(tls.ca, certificate)


KEY_USAGES = dict.fromkeys(
    (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    ),
    False,
)  # fmt: skip


def _certificate(
    name: str, key: ec.EllipticCurvePublicKey, issuer: x509.Name, *, until: datetime.datetime
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(until)
    )


def _in_days(days: int) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise FederationError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise FederationError(f"{path} is damaged: {error}") from None


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    return [_name(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]


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
    write_file(path, encoded, "tls.key")


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    write_file(path, certificate.public_bytes(serialization.Encoding.PEM), "tls.certificate")
