"""A site's keys: an Ed25519 key as its permanent identity, and an X25519 key for every epoch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


@dataclass(frozen=True, slots=True)
class Identity:
    """A site's signing key. It is the identity, since Flower's node id may change at a restart."""

    private: bytes = field(repr=False)

    @classmethod
    def create(cls) -> Identity:
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    @property
    def name(self) -> str:
        """The public key as 64 hexadecimal digits, as it is written in records and pinned keys."""
        return self.public.hex()

    @property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.private)

    def sign(self, purpose: str, content: bytes) -> bytes:
        """A signature for one purpose; it is not valid for a statement of another kind."""
        return self._key.sign(_statement(purpose, content))

    def secret(self, purpose: str) -> bytes:
        """A key for one purpose that nobody else can compute, 32 bytes."""
        return hashlib.blake2b(_statement(purpose, b""), digest_size=32, key=self.private).digest()


def is_signed(public: bytes, purpose: str, content: bytes, signature: bytes) -> bool:
    """Whether the owner of this public key signed this content for this purpose."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _statement(purpose, content))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _statement(purpose: str, content: bytes) -> bytes:
    return b"fedcommons/1/" + purpose.encode() + b"\0" + content


def fresh_epoch_key() -> tuple[bytes, bytes]:
    """A new X25519 key: (public, private)."""
    private = X25519PrivateKey.generate()
    return private.public_key().public_bytes_raw(), private.private_bytes_raw()
