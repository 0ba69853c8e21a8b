"""A chunk of the exchange: the examples of a range of share numbers, sealed for one recipient.

A sender's offer fixes how its share numbers are divided into chunks, and the draw fixes who gets
which example. So every party knows what each chunk must hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcommons.federate.protocol import envelope, packing
from fedcommons.federate.protocol.envelope import Context, federation_digest
from fedcommons.federate.protocol.example_schema import ExampleForm
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.protocol.records import Epoch, Offer
from fedcommons.federate.protocol.refusals import EnvelopeRefused

CHUNK_BYTES = 16 << 20  # the most that one message of the exchange may carry


def rows_per_chunk(offer: Offer, copies: int) -> int:
    """How many share numbers a chunk has: the envelopes of all copies fit in one message."""
    return max(1, CHUNK_BYTES // (max(copies, 1) * offer.row_bytes))


def n_chunks(offer: Offer, copies: int) -> int:
    return -(-offer.n_shareable // rows_per_chunk(offer, copies))


def share_numbers(offer: Offer, copies: int, chunk: int) -> range:
    """The share numbers of a chunk."""
    step = rows_per_chunk(offer, copies)
    return range(chunk * step, min((chunk + 1) * step, offer.n_shareable))


def seal(
    examples: SharedExamples,
    epoch: Epoch,
    sender: Identity,
    recipient: Offer,
    chunk: int,
    total: int,
) -> bytes:
    """The envelope with these examples of a chunk; refused if the recipient's key is unusable."""
    context = Context(
        federation_digest(epoch.federation),
        epoch.digest,
        sender.public,
        bytes.fromhex(recipient.identity),
        chunk,
        total,
    )
    return envelope.seal(
        examples.pack(), context, to_key=bytes.fromhex(recipient.key), sender=sender
    )


def unseal(
    data: bytes,
    epoch: Epoch,
    me: int,
    *,
    key: bytes,
    senders: Mapping[bytes, int],
    form: ExampleForm,
) -> tuple[int, int, SharedExamples, bytes]:
    """Open an envelope: its sender, chunk number, examples and their bytes.

    Refused unless these are exactly the examples that the draw gives this site.

    Args:
        data: the envelope.
        epoch: the record that the exchange follows.
        me: this site's place in the roster.
        key: the private half of the key that this site offered.
        senders: the place in the roster of each identity.
        form: what every example must look like.
    """
    context, packed = envelope.unseal(
        data,
        federation=federation_digest(epoch.federation),
        epoch=epoch.digest,
        recipient=bytes.fromhex(epoch.sites[me].identity),
        senders=senders,
        key=key,
        largest=max(CHUNK_BYTES, form.row_bytes) + 1024,
    )
    sender, examples = senders[context.sender], packing.unpack(packed)
    _check_numbers(examples, epoch, sender, me, context)
    _check_values(examples, form)
    return sender, context.chunk, examples, packed


def _check_numbers(
    examples: SharedExamples, epoch: Epoch, sender: int, me: int, context: Context
) -> None:
    offer = epoch.sites[sender]
    if context.n_chunks != n_chunks(offer, epoch.copies) or context.chunk >= context.n_chunks:
        raise EnvelopeRefused("the sender has no such chunk")
    numbers = share_numbers(offer, epoch.copies, context.chunk)
    expected = epoch.draw.assigned(sender, me, numbers.start, numbers.stop)
    if not len(expected) or not np.array_equal(examples.numbers, expected):
        raise EnvelopeRefused("the chunk does not hold the examples that are assigned to this site")


def _check_values(examples: SharedExamples, form: ExampleForm) -> None:
    x, y = examples.x, examples.y
    if x.dtype != form.dtype or x.shape[1:] != form.shape:
        raise EnvelopeRefused("the examples differ from this site's in shape or type")
    if y.dtype != form.label_dtype or y.shape[1:] != form.label_shape:
        raise EnvelopeRefused("the labels differ from this site's in shape or type")
    if form.has_class_numbers:
        if (y < 0).any() or (form.n_classes is not None and (y >= form.n_classes).any()):
            raise EnvelopeRefused("a label is not one of the classes")
    elif not np.isfinite(y).all():
        raise EnvelopeRefused("a label is not finite")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise EnvelopeRefused("an input is not finite")
