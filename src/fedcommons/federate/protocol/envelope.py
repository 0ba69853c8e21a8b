"""Sealed envelopes, which the server routes but cannot read.

An envelope is sealed with HPKE to the recipient's key of the epoch. Its context is the federation,
the epoch, the sender, the recipient, and the chunk's number out of how many. The sender signs it,
since with HPKE alone anybody could write to the recipient. The signature covers the context, HPKE's
encapsulated key and authentication tag, and the length, but not the content: only the sender and
the recipient have the key that the tag depends on, so the tag vouches for the content, and 16 MB
need not be hashed twice.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from fedcommons.federate.protocol.keys import Identity, is_signed
from fedcommons.federate.protocol.refusals import EnvelopeRefused

MAGIC = b"FCE1"
CONTEXT = struct.Struct("<32s32s32s32sII")
KEY_BYTES, TAG_BYTES = 32, 16  # HPKE: the encapsulated key, and the tag at the end
OVERHEAD = KEY_BYTES + TAG_BYTES
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


@dataclass(frozen=True, slots=True)
class Context:
    """What an envelope is bound to; it cannot be opened in any other context.

    Attributes:
        federation, epoch: the digests of the federation's name and of the epoch's record.
        sender, recipient: public identity keys.
        chunk, n_chunks: the chunk's number, and how many chunks this sender has.
    """

    federation: bytes
    epoch: bytes
    sender: bytes
    recipient: bytes
    chunk: int
    n_chunks: int

    def encode(self) -> bytes:
        return CONTEXT.pack(
            self.federation, self.epoch, self.sender, self.recipient, self.chunk, self.n_chunks
        )


def federation_digest(name: str) -> bytes:
    return hashlib.sha256(b"fedcommons/federation/" + name.encode()).digest()


def seal(content: bytes, context: Context, *, to_key: bytes, sender: Identity) -> bytes:
    """Seal the content to the recipient's key of the epoch, and sign it; refuse an unusable key."""
    head = context.encode()
    try:
        sealed = SUITE.encrypt(content, X25519PublicKey.from_public_bytes(to_key), info=head)
    except ValueError:  # a point of small order, with which everybody would know the shared secret
        raise EnvelopeRefused("the recipient's key cannot be used for sealing") from None
    signature = sender.sign("envelope", _signed_part(head, sealed))
    return b"".join((MAGIC, signature, head, sealed))


def peek(data: bytes) -> Context:
    """The context that an envelope claims to have; nothing is verified."""
    start = len(MAGIC) + 64
    if len(data) < start + CONTEXT.size + OVERHEAD or data[: len(MAGIC)] != MAGIC:
        raise EnvelopeRefused("an envelope must have a header")
    return Context(*CONTEXT.unpack_from(data, start))


def unseal(
    data: bytes,
    *,
    federation: bytes,
    epoch: bytes,
    recipient: bytes,
    senders: Container[bytes],
    key: bytes,
    largest: int,
) -> tuple[Context, bytes]:
    """Open an envelope if it is for this recipient and epoch, and from one of the senders.

    `key` is the recipient's private key of the epoch and `largest` the longest content expected.
    """
    if len(data) > largest + len(MAGIC) + 64 + CONTEXT.size + OVERHEAD:
        raise EnvelopeRefused(f"an envelope must hold at most {largest} bytes")
    context = peek(data)
    if context.federation != federation or context.epoch != epoch:
        raise EnvelopeRefused("the envelope is of another federation or epoch")
    if context.recipient != recipient or context.sender == recipient:
        raise EnvelopeRefused("the envelope is for another recipient")
    if context.sender not in senders:
        raise EnvelopeRefused("the sender is not in the roster")
    start = len(MAGIC) + 64
    head = data[start : start + CONTEXT.size]
    sealed = memoryview(data)[start + CONTEXT.size :]  # it may be large: not copied
    signature = data[len(MAGIC) : start]
    if not is_signed(context.sender, "envelope", _signed_part(head, sealed), signature):
        raise EnvelopeRefused("the envelope is not signed by its sender")
    try:
        return context, SUITE.decrypt(sealed, X25519PrivateKey.from_private_bytes(key), info=head)
    except (InvalidTag, ValueError):
        raise EnvelopeRefused("the envelope cannot be opened") from None


def _signed_part(head: bytes, sealed: bytes | memoryview) -> bytes:
    """What the signature covers: the context, HPKE's key and tag, and the length."""
    return b"".join((head, sealed[:KEY_BYTES], sealed[-TAG_BYTES:], struct.pack("<Q", len(sealed))))
