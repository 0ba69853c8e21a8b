"""What a site sends arrives, once, with a receipt."""

from dataclasses import replace

import numpy as np
import pytest

from fedcommons.federate.protocol import chunks
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.receipts import Receipt, receipt_content
from fedcommons.federate.protocol.records import Epoch
from tests.federate.conftest import FEDERATION, drawn, epoch_of, exchange, made_up, sent_by
from tests.federate.site.envelopes import (
    A,
    B,
    C,
    assert_refused,
    from_a_to_b,
    kept,
    payload,
)


def test_what_was_sent_arrives(three, epoch):
    commit = exchange(three, epoch)
    assert set(commit.pairs) == {(s, r) for s in range(3) for r in range(3) if s != r}
    for site in three:
        site.apply_commit(commit.record)
    for site in three:
        for sender, numbers in site.holdings(commit).senders:
            x, y = site.received_examples(commit, sender)
            rows = three[sender].store.manifests.newest().share_rows[numbers]
            np.testing.assert_array_equal(x, three[sender].data.x.take(rows))
            np.testing.assert_array_equal(y, three[sender].data.y[rows])
    assert sum(site.holdings(commit).coverage for site in three) == pytest.approx(commit.n_examples)


def test_several_chunks_arrive_as_one_does(make_site, monkeypatch):
    """Two share numbers in a chunk, delivered in any order: receipts come with the last."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2 * 40)
    sites = [make_site(name) for name in "abc"]
    epoch = epoch_of(sites, copies=1)
    _, n = sites[A].exchange.send(epoch.record, [], 0)
    assert n == 3
    envelopes = [sent_by(sites[A], epoch, chunk).get(B) for chunk in range(n)]
    envelopes = [sealed for sealed in envelopes if sealed is not None][::-1]
    assert len(envelopes) > 1
    for sealed in envelopes[:-1]:
        assert sites[B].exchange.receive(epoch.record, [sealed]) == ([], {})
    receipts, _ = sites[B].exchange.receive(epoch.record, envelopes[-1:])
    assert [r.examples for r in receipts] == [epoch.draw.n_assigned(A, B)]
    assert sites[A].exchange.send(epoch.record, [B, C], n) == ([], n)
    assert sites[A].exchange.send(epoch.record, [B, C], -1) == ([], n)


def test_receiving_again_changes_nothing_and_gives_the_receipt_again(three, epoch):
    sealed = sent_by(three[A], epoch)[B]
    first = three[B].exchange.receive(epoch.record, [sealed])
    before = kept(three[B])
    assert three[B].exchange.receive(epoch.record, [sealed]) == first
    assert three[B].exchange.receive(epoch.record, [sealed, sealed]) == first
    again = sent_by(three[A], epoch)[B]  # sealed anew: other bytes, the same content
    assert again != sealed
    assert three[B].exchange.receive(epoch.record, [again]) == first
    assert kept(three[B]) == before
    assert first[0][0].is_signed(epoch)


def test_good_envelopes_are_kept_beside_bad_ones(three, epoch):
    good = [sent_by(three[sender], epoch)[B] for sender in (A, C)]
    receipts, refused = three[B].exchange.receive(
        epoch.record, [good[0], b"junk", good[1], good[0][:-1]]
    )
    assert refused == {"EnvelopeRefused": 2}
    assert sorted(r.sender for r in receipts) == sorted(epoch.sites[s].identity for s in (A, C))


def test_a_chunk_that_is_here_is_not_replaced(three, epoch, caplog):
    three[B].exchange.receive(epoch.record, [sent_by(three[A], epoch)[B]])
    other = payload(three, epoch)
    other = replace(other, y=other.y + 1)
    assert_refused(three[B], epoch, from_a_to_b(three, epoch, other.pack()), caplog)


def test_only_the_recipients_asked_for_get_an_envelope(three, epoch):
    assert set(sent_by(three[A], epoch)) == {B, C}
    envelopes, _ = three[A].exchange.send(epoch.record, [C, C, A, 17, -1], 0)
    assert [recipient for recipient, _ in envelopes] == [C]


def test_a_recipient_with_a_key_of_small_order_does_not_hold_up_the_others(three):
    offers = [
        site.exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True, seed=25)
        for site in three
    ]
    offers[C] = made_up(offers[C].checked(), three[C].store.identity, key="00" * 32)
    epoch = drawn(three[:C], Epoch(FEDERATION, 1, 1, tuple(offers)))
    assert set(sent_by(three[A], epoch)) == {B}


def test_both_sides_keep_the_receipt(committed):
    sites, _, commit = committed
    given = [e for e in sites[B].store.ledger.entries() if e.event == "receipt given"]
    assert {e.peer for e in given} == {sites[A].identity_name, sites[C].identity_name}
    for entry in given:
        receipt = Receipt(entry.peer, sites[B].identity_name, entry.examples, entry.evidence)
        assert receipt.is_signed_under(bytes.fromhex(commit.epoch))


def test_a_receipt_is_worth_what_its_recipient_signed(three, epoch):
    (receipt,), _ = three[B].exchange.receive(epoch.record, [sent_by(three[A], epoch)[B]])
    assert receipt.is_signed(epoch)
    for changes in (
        {"examples": receipt.examples + 1},
        {"sender": three[C].identity_name},
        {"recipient": three[C].identity_name},
        {"recipient": "no key"},
        {"signature": receipt.signature[:-1] + b"\0\0"},
        {"signature": None},
        {"examples": b"4"},
    ):
        assert not replace(receipt, **changes).is_signed(epoch), changes
    assert not receipt.is_signed(epoch_of(three, number=2))
    short = receipt_content(epoch.digest, receipt.sender, receipt.recipient, 0)
    signed = three[B].store.identity.sign("receipt", short)
    assert not replace(receipt, examples=0, signature=signed).is_signed(epoch)


def test_only_good_receipts_come_into_the_ledger(three, epoch):
    (receipt,), _ = three[B].exchange.receive(epoch.record, [sent_by(three[A], epoch)[B]])
    commit = Commit.of(epoch, ((A, B),))
    stranger = Identity.create()
    content = receipt_content(epoch.digest, receipt.sender, stranger.name, 3)
    bad = [
        replace(receipt, examples=5),
        replace(receipt, recipient="no key"),
        replace(receipt, examples=b"4"),
        replace(receipt, sender=three[C].identity_name),
        Receipt(receipt.sender, stranger.name, 3, stranger.sign("receipt", content)),
    ]
    three[A].note_receipts(commit, [*bad, receipt, receipt])
    noted = [e for e in three[A].store.ledger.entries() if e.event == "receipt"]
    assert [(e.peer, e.examples, e.evidence) for e in noted] == [
        (receipt.recipient, receipt.examples, receipt.signature)
    ]
