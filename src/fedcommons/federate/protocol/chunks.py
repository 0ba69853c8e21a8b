"""A chunk of the exchange: the examples of some share numbers, sealed for one recipient.

How a sender's share numbers are divided into chunks follows from its offer, and who gets which from
the draw: every party knows what a chunk must hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcommons.federate.protocol import envelope, packing
from fedcommons.federate.protocol.envelope import Context, federation_digest
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.packing import Examples
from fedcommons.federate.protocol.records import Epoch, Offer
from fedcommons.federate.protocol.refusals import EnvelopeRefused
from fedcommons.federate.site.own_data import SiteData

CHUNK_BYTES = 16 << 20  # what a message of the exchange may carry


def rows_per_chunk(offer: Offer, copies: int) -> int:
    """How many share numbers a chunk covers, so that all its envelopes fit in one message."""
    return max(1, CHUNK_BYTES // (max(copies, 1) * offer.row_bytes))


def n_chunks(offer: Offer, copies: int) -> int:
    return -(-offer.n_shareable // rows_per_chunk(offer, copies))


def share_numbers(offer: Offer, copies: int, chunk: int) -> range:
    """The share numbers that a chunk covers."""
    step = rows_per_chunk(offer, copies)
    return range(chunk * step, min((chunk + 1) * step, offer.n_shareable))


def seal(
    examples: Examples, epoch: Epoch, sender: Identity, recipient: Offer, chunk: int, total: int
) -> bytes:
    """The envelope of these examples of a chunk; refused if the recipient's key is none."""
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
    data: bytes, epoch: Epoch, me: int, *, key: bytes, senders: Mapping[bytes, int], own: SiteData
) -> tuple[int, int, Examples, bytes]:
    """An envelope's sender, chunk, examples and their bytes, if they are what the draw says.

    Args:
        data: the envelope.
        epoch: what the exchange goes by.
        me: this site's place in the roster.
        key: the private half of the key that it offered.
        senders: the identity and the place of each site.
        own: this site's data: what others send must have the same form.
    """
    context, packed = envelope.unseal(
        data,
        federation=federation_digest(epoch.federation),
        epoch=epoch.digest,
        recipient=bytes.fromhex(epoch.sites[me].identity),
        senders=senders,
        key=key,
        largest=max(CHUNK_BYTES, own.row_bytes) + 1024,
    )
    sender, examples = senders[context.sender], packing.unpack(packed)
    _check_numbers(examples, epoch, sender, me, context)
    _check_values(examples, own)
    return sender, context.chunk, examples, packed


def _check_numbers(
    examples: Examples, epoch: Epoch, sender: int, me: int, context: Context
) -> None:
    offer = epoch.sites[sender]
    if context.n_chunks != n_chunks(offer, epoch.copies) or context.chunk >= context.n_chunks:
        raise EnvelopeRefused("the chunk is not one of the sender's")
    numbers = share_numbers(offer, epoch.copies, context.chunk)
    expected = epoch.draw.assigned(sender, me, numbers.start, numbers.stop)
    if not len(expected) or not np.array_equal(examples.numbers, expected):
        raise EnvelopeRefused("the chunk holds other examples than those assigned to this site")


def _check_values(examples: Examples, own: SiteData) -> None:
    x, y = examples.x, examples.y
    if x.dtype != own.x.dtype or x.shape[1:] != own.x.shape[1:]:
        raise EnvelopeRefused("the examples have another shape or type than this site's")
    if (y < 0).any() or (own.n_classes is not None and (y >= own.n_classes).any()):
        raise EnvelopeRefused("the examples hold labels that are no classes")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise EnvelopeRefused("the examples hold values that no example may have")
