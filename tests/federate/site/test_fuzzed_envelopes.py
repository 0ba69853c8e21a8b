"""No mutated envelope is accepted."""

import logging

import numpy as np

from fedcommons.federate.protocol import envelope, packing
from fedcommons.federate.protocol.envelope import Context
from tests.federate.conftest import sent_by
from tests.federate.site.envelopes import (
    A,
    B,
    C,
    changed_payloads,
    kept,
    payload,
)

N_RAW, N_SEALED = 100_000, 10_000


def mutated(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """The envelope after flips, a cut, a splice with another, an edit or an insertion; garbage."""
    kind = rng.integers(7)
    at, to = sorted(rng.integers(0, len(data) + 1, size=2).tolist())
    if kind == 0:
        flipped = bytearray(data)
        for place in rng.integers(0, len(data), size=rng.integers(1, 4)).tolist():
            flipped[place] ^= int(rng.integers(1, 256))
        return bytes(flipped)
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + other[at:]
    if kind == 3:
        return data[:at] + data[to:]
    if kind == 4:
        return rng.bytes(int(rng.integers(0, 500)))
    if kind == 5:
        field = int(rng.integers(len(data) - 4))
        return data[:field] + rng.bytes(4) + data[field + 4 :]
    return data[:to] + rng.bytes(int(rng.integers(1, 9))) + data[to:]


def test_no_mutated_envelope_is_accepted(three, epoch):
    """100,000 mutations of envelopes to b, in messages of 1,000."""
    rng = np.random.default_rng(1)
    originals = [sent_by(three[A], epoch)[B], sent_by(three[C], epoch)[B]]
    others = [*originals, sent_by(three[A], epoch)[C], sent_by(three[B], epoch)[A]]
    three[B].exchange.receive(epoch.record, [])
    before = kept(three[B])
    logging.disable(logging.WARNING)
    try:
        for _ in range(N_RAW // 1000):
            batch = []
            while len(batch) < 1000:
                data = mutated(originals[rng.integers(2)], others[rng.integers(4)], rng)
                if data not in originals:
                    batch.append(data)
            assert three[B].exchange.receive(epoch.record, batch) == ([], {"EnvelopeRefused": 1000})
    finally:
        logging.disable(logging.NOTSET)
    assert kept(three[B]) == before
    receipts, _ = three[B].exchange.receive(epoch.record, originals)
    assert len(receipts) == 2


def test_no_mutated_payload_of_a_legitimate_sender_is_accepted(three, epoch):
    """10,000 envelopes, rightly sealed and signed, whose content breaks a rule.

    Header and share numbers may change anywhere; a label or an input may take a value that none may
    have. Values that an example may have are the sender's to choose.
    """
    rng = np.random.default_rng(2)
    good = payload(three, epoch)
    original = good.pack()
    start = packing.HEAD.size + packing.ARRAY.size + 4
    x_at = start + 16 * len(good)
    rules = list(changed_payloads(good, epoch.sites[A].n_shareable).values())
    context = Context(*envelope.CONTEXT.unpack_from(sent_by(three[A], epoch)[B], 68))
    key, identity = bytes.fromhex(epoch.sites[B].key), three[A].store.identity
    three[B].exchange.receive(epoch.record, [])
    before = kept(three[B])

    def content() -> bytes:
        kind, data = rng.integers(7), bytearray(original)
        if kind == 0:  # header, shape, share numbers
            data[int(rng.integers(start + 8 * len(good)))] ^= int(rng.integers(1, 256))
        elif kind == 1:  # the sign of a label
            data[start + 8 * len(good) + 8 * int(rng.integers(len(good))) + 7] ^= 0x80
        elif kind == 2:  # NaN or infinity
            at = x_at + 4 * int(rng.integers(good.x.size))
            data[at : at + 4] = np.float32(rng.choice([np.nan, np.inf, -np.inf])).tobytes()
        elif kind == 3:
            del data[int(rng.integers(len(data))) :]
        elif kind == 4:
            data += rng.bytes(int(rng.integers(1, 40)))
        elif kind == 5:
            data = bytearray(rng.bytes(int(rng.integers(0, 200))))
        else:
            data = bytearray(rules[rng.integers(len(rules))])
        return bytes(data)

    logging.disable(logging.WARNING)
    try:
        for _ in range(N_SEALED // 1000):
            batch = [
                envelope.seal(content(), context, to_key=key, sender=identity) for _ in range(1000)
            ]
            assert three[B].exchange.receive(epoch.record, batch) == ([], {"EnvelopeRefused": 1000})
    finally:
        logging.disable(logging.NOTSET)
    assert kept(three[B]) == before
