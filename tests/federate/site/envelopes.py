"""Envelopes between three sites a, b and c, as they should be and otherwise."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from fedcommons.federate.protocol import envelope
from fedcommons.federate.protocol.envelope import Context, federation_digest
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.site.site import Site
from tests.federate.conftest import FEDERATION

A, B, C = range(3)


def kept(site: Site) -> tuple[object, ...]:
    """What a store holds of others, and its ledger."""
    return site.store.received.counts(), [entry.event for entry in site.store.ledger.entries()]


def assert_refused(site: Site, epoch: Epoch, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Refused, logged by the class alone, nothing stored, no receipt."""
    site.exchange.receive(epoch.record, [])  # enters the epoch
    before = kept(site)
    caplog.clear()
    receipts, refused = site.exchange.receive(epoch.record, [data])
    assert (receipts, refused) == ([], {"EnvelopeRefused": 1})
    assert [record.getMessage() for record in caplog.records] == [
        "refused an envelope: EnvelopeRefused"
    ]
    assert kept(site) == before


def from_a_to_b(
    sites: list[Site],
    of: Epoch,
    content: bytes,
    *,
    by: int = A,
    to_key: bytes | None = None,
    **changes: object,
) -> bytes:
    """An envelope as a sealed it for b, but for these changes."""
    context = Context(
        federation_digest(FEDERATION),
        of.digest,
        bytes.fromhex(of.sites[A].identity),
        bytes.fromhex(of.sites[B].identity),
        0,
        1,
    )
    return envelope.seal(
        content,
        dataclasses.replace(context, **changes),
        to_key=to_key or bytes.fromhex(of.sites[B].key),
        sender=sites[by].store.identity,
    )


def payload(sites: list[Site], epoch: Epoch, recipient: int = B) -> SharedExamples:
    """What the draw gives a recipient of a's examples."""
    numbers = epoch.draw.assigned(A, recipient)
    rows = sites[A].store.manifests.newest().share_rows[numbers]
    data = sites[A].data
    return SharedExamples(numbers, data.y[rows], data.x.take(rows))


def changed_payloads(good: SharedExamples, n_shareable: int) -> dict[str, bytes]:
    """Payloads that break a rule, by what is wrong with them."""
    x, y, numbers = good.x, good.y, good.numbers
    others = np.setdiff1d(np.arange(n_shareable), numbers)[:1]
    nan, infinite = x.copy(), x.copy()
    nan[0, 0], infinite[-1, -1] = np.nan, -np.inf
    found = {
        "labels of floats": SharedExamples(numbers, y.astype(np.float64), x),
        "labels in a column": SharedExamples(numbers, y[:, None], x),
        "one less": good.select(np.arange(len(good)) > 0),
        "one more": SharedExamples(
            np.append(numbers, others), np.append(y, 0), np.vstack([x, x[:1]])
        ),
        "none": good.select(np.zeros(len(good), np.bool_)),
        "another example": replace(good, numbers=np.sort(np.append(numbers[1:], others))),
        "another order": good.select(np.arange(len(good))[::-1]),
        "one twice": SharedExamples(*(np.concatenate([v, v[-1:]]) for v in (numbers, y, x))),
        "beyond the last": replace(good, numbers=numbers + n_shareable),
        "negative numbers": replace(good, numbers=-numbers - 1),
        "negative labels": replace(good, y=-y - 1),
        "another type": replace(good, x=x.astype(np.float64)),
        "integers": replace(good, x=x.view(np.int32)),
        "another shape": replace(good, x=x.reshape(len(x), 2, 3)),
        "fewer features": replace(good, x=x[:, :5]),
        "NaN": replace(good, x=nan),
        "infinity": replace(good, x=infinite),
    }
    return {name: examples.pack() for name, examples in found.items()}
