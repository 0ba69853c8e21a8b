"""An envelope is refused unless it is exactly what the draw says."""

import pytest

from fedcommons.federate.protocol import chunks, envelope
from fedcommons.federate.protocol.envelope import federation_digest
from fedcommons.federate.protocol.keys import Identity, fresh_epoch_key
from tests.federate.conftest import epoch_of, example_data, sent_by
from tests.federate.site.envelopes import (
    A,
    B,
    C,
    assert_refused,
    changed_payloads,
    from_a_to_b,
    payload,
)


def test_the_helper_makes_an_envelope_that_is_accepted(three, epoch):
    """So that what is refused below is refused for what was changed."""
    sealed = from_a_to_b(three, epoch, payload(three, epoch).pack())
    receipts, refused = three[B].exchange.receive(epoch.record, [sealed])
    assert len(receipts) == 1
    assert refused == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"federation": federation_digest("banks")},
        {"epoch": b"e" * 32},
        {"by": C},
        {"chunk": 1},
        {"chunk": 2**32 - 1},
        {"n_chunks": 2},
        {"n_chunks": 0},
        {"to_key": fresh_epoch_key()[0]},
        {"recipient": Identity(bytes(32)).public},
        {"sender": Identity(bytes(32)).public},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_envelope_of_another_context_is_refused(three, epoch, caplog, changes):
    data = from_a_to_b(three, epoch, payload(three, epoch).pack(), **changes)
    assert_refused(three[B], epoch, data, caplog)


def test_an_envelope_for_another_recipient_is_refused(three, epoch, caplog):
    assert_refused(three[B], epoch, sent_by(three[A], epoch)[C], caplog)
    to_c = payload(three, epoch, C).pack()
    assert_refused(three[B], epoch, from_a_to_b(three, epoch, to_c), caplog)


def test_an_envelope_of_an_earlier_epoch_is_refused(three, epoch, caplog):
    old = sent_by(three[A], epoch)[B]
    later = epoch_of(three, number=2)
    assert_refused(three[B], later, old, caplog)


def test_an_envelope_of_a_site_that_is_not_in_the_roster_is_refused(make_site, caplog):
    sites = [make_site(name) for name in "abcd"]
    epoch = epoch_of(sites[:3])
    stranger = sites[3].store.identity
    data = from_a_to_b(sites, epoch, payload(sites, epoch).pack(), by=3, sender=stranger.public)
    assert_refused(sites[B], epoch, data, caplog)


def test_swapped_bodies_are_refused(three, epoch, caplog):
    one, two = sent_by(three[A], epoch)[B], sent_by(three[C], epoch)[B]
    start = len(envelope.MAGIC) + 64 + envelope.CONTEXT.size
    assert_refused(three[B], epoch, one[:start] + two[start:], caplog)
    assert_refused(three[B], epoch, two[:start] + one[start:], caplog)


def test_an_oversized_claim_is_refused_before_it_is_opened(three, epoch, caplog, monkeypatch):
    data = from_a_to_b(three, epoch, bytes(8192))
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(envelope, "is_signed", lambda *_: pytest.fail("it was looked at"))
    assert_refused(three[B], epoch, data, caplog)


def test_examples_that_break_a_rule_are_refused(three, epoch, caplog):
    good = payload(three, epoch)
    assert len(good) > 1
    for content in changed_payloads(good, epoch.sites[A].n_shareable).values():
        assert_refused(three[B], epoch, from_a_to_b(three, epoch, content), caplog)


def test_an_empty_chunk_is_refused(make_site, caplog):
    """Where the draw gives a recipient nothing, nothing is accepted."""
    sites = [make_site("a", example_data(1, n_shareable=1)), make_site("b"), make_site("c")]
    seeds = (seed for seed in range(64) if epoch_of(sites, seed=seed).draw.n_assigned(A, B) == 0)
    epoch = epoch_of(sites, seed=next(seeds))
    nothing = payload(sites, epoch)
    assert len(nothing) == 0
    assert_refused(sites[B], epoch, from_a_to_b(sites, epoch, nothing.pack()), caplog)
