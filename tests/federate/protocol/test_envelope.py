"""Envelopes open for whom they were sealed to, as they were sealed, and nowhere else."""

import dataclasses

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from fedcommons.federate.protocol import envelope
from fedcommons.federate.protocol.envelope import Context, federation_digest, peek, seal, unseal
from fedcommons.federate.protocol.keys import Identity, fresh_epoch_key, is_signed
from fedcommons.federate.protocol.refusals import EnvelopeRefused

SENDER, RECIPIENT, OTHER = (Identity(bytes([i]) * 32) for i in (1, 2, 3))
PUBLIC, PRIVATE = fresh_epoch_key()
CONTENT = b"sixteen examples" * 4
CONTEXT = Context(
    federation_digest("hospitals"), b"e" * 32, SENDER.public, RECIPIENT.public, chunk=2, n_chunks=5
)
SEALED = seal(CONTENT, CONTEXT, to_key=PUBLIC, sender=SENDER)
HEAD = len(envelope.MAGIC) + 64  # where the context starts
BODY = HEAD + envelope.CONTEXT.size


def opened(data: bytes, **changes: object) -> tuple[Context, bytes]:
    """Open as the recipient expects it, but for these changes."""
    expected = dict(
        federation=CONTEXT.federation,
        epoch=CONTEXT.epoch,
        recipient=RECIPIENT.public,
        senders={SENDER.public, RECIPIENT.public, OTHER.public},
        key=PRIVATE,
        largest=1000,
    )
    return unseal(data, **{**expected, **changes})


def sealed_with(
    *, signed_by: Identity = SENDER, to_key: bytes = PUBLIC, **changes: object
) -> bytes:
    context = dataclasses.replace(CONTEXT, **changes)
    return seal(CONTENT, context, to_key=to_key, sender=signed_by)


def test_opens_for_its_recipient():
    assert opened(SEALED) == (CONTEXT, CONTENT)
    assert peek(SEALED) == CONTEXT


def test_the_content_is_nowhere_in_the_envelope():
    assert all(CONTENT[i : i + 8] not in SEALED for i in range(len(CONTENT) - 8))


def test_sealing_twice_gives_nothing_to_compare():
    assert SEALED[BODY:] != sealed_with()[BODY:]


@pytest.mark.parametrize(
    "changes",
    [
        {"federation": federation_digest("banks")},
        {"epoch": b"f" * 32},
        {"recipient": OTHER.public},
        {"recipient": SENDER.public},
        {"senders": {OTHER.public}},
        {"senders": set()},
        {"key": fresh_epoch_key()[1]},
        {"largest": len(CONTENT) - 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_opens_nowhere_else(changes):
    with pytest.raises(EnvelopeRefused):
        opened(SEALED, **changes)


def test_the_largest_content_is_accepted():
    assert opened(SEALED, largest=len(CONTENT))[1] == CONTENT


@pytest.mark.parametrize(
    "data",
    [
        sealed_with(signed_by=OTHER),  # says it is of SENDER, signed by another member
        sealed_with(to_key=fresh_epoch_key()[0]),
        sealed_with(signed_by=RECIPIENT, sender=RECIPIENT.public),
    ],
    ids=["forged sender", "other key", "from the recipient itself"],
)
def test_wrongly_made_envelopes_are_refused(data):
    with pytest.raises(EnvelopeRefused):
        opened(data)


def test_no_bit_can_be_changed():
    for bit in range(8 * len(SEALED)):
        data = bytearray(SEALED)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EnvelopeRefused):
            opened(bytes(data))


def test_no_length_but_its_own_opens():
    for length in range(len(SEALED)):
        with pytest.raises(EnvelopeRefused):
            opened(SEALED[:length])
    for tail in (b"\0", SEALED):
        with pytest.raises(EnvelopeRefused):
            opened(SEALED + tail)


def test_bodies_cannot_be_swapped():
    other = sealed_with(chunk=3)
    for cut in (len(envelope.MAGIC), HEAD, BODY, BODY + 32):
        for data in (SEALED[:cut] + other[cut:], other[:cut] + SEALED[cut:]):
            if data not in (SEALED, other):  # both start with the same letters
                with pytest.raises(EnvelopeRefused):
                    opened(data)


def test_a_body_cannot_be_signed_anew_under_another_context():
    """A member who re-signs what another member sealed cannot make it its own."""
    head = dataclasses.replace(CONTEXT, sender=OTHER.public).encode()
    sealed = SEALED[BODY:]
    signature = OTHER.sign("envelope", envelope._signed_part(head, sealed))
    with pytest.raises(EnvelopeRefused):
        opened(envelope.MAGIC + signature + head + sealed)


def test_a_signature_cannot_be_moved_to_another_body():
    """Anybody can seal to the recipient's key; only the sender can sign what was sealed."""
    key = X25519PublicKey.from_public_bytes(PUBLIC)
    body = envelope.SUITE.encrypt(b"forged", key, info=CONTEXT.encode())
    with pytest.raises(EnvelopeRefused):
        opened(SEALED[:BODY] + body)


def test_a_key_of_small_order_is_not_sealed_to():
    with pytest.raises(EnvelopeRefused):
        sealed_with(to_key=bytes(32))


def test_a_signature_is_for_one_purpose():
    signature = SENDER.sign("envelope", b"content")
    assert is_signed(SENDER.public, "envelope", b"content", signature)
    assert not is_signed(SENDER.public, "receipt", b"content", signature)
    assert not is_signed(OTHER.public, "envelope", b"content", signature)
    assert not is_signed(b"short", "envelope", b"content", signature)
    assert not is_signed(SENDER.public, "envelope", b"content", None)


def test_private_keys_are_not_printed():
    assert SENDER.private.hex() not in repr(SENDER)
    assert repr(SENDER.private) not in repr(SENDER)


def test_secrets_differ_by_purpose_and_identity():
    secrets = {i.secret(p) for i in (SENDER, OTHER) for p in ("fingerprints", "something else")}
    assert len(secrets) == 4
    assert {len(secret) for secret in secrets} == {32}
