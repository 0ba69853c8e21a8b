"""What a site withdrew is gone for all, and does not come back."""

import numpy as np
import pytest

from fedcommons.federate.protocol.refusals import (
    CommitRefused,
    DataChanged,
    SiteWithdrew,
    StoreIsOlder,
)
from fedcommons.federate.site.policy import SIMULATED
from fedcommons.federate.site.site import Site
from tests.federate.conftest import FEDERATION, epoch_of, exchange, sent_by, withdrawn
from tests.federate.site.envelopes import (
    A,
    B,
    C,
)


def test_a_withdrawal_is_followed_although_a_later_epoch_was_begun(committed):
    sites, _, commit = committed
    sites[B].exchange.receive(epoch_of(sites, number=2).record, [])
    gone = withdrawn(sites, commit, A, [0])
    assert sites[B].apply_commit(gone.record) == gone


def test_what_a_later_epoch_brought_of_who_took_something_back_is_deleted(committed):
    """It may be among it, under another number; what the others sent stays."""
    sites, _, commit = committed
    later = epoch_of(sites, number=2)
    for sender in (A, C):
        sites[B].exchange.receive(later.record, [sent_by(sites[sender], later)[B]])
    sites[B].apply_commit(withdrawn(sites, commit, A, [0]).record)
    senders = {
        sender for epoch, sender, *_ in sites[B].store.received.rows() if epoch == later.digest
    }
    assert senders == {sites[C].identity_name}


def test_rows_are_not_numbered_anew_by_who_forgot_what_its_commit_knows(committed):
    sites, _, commit = committed
    sites[B].store.apply(commit.anew(withdrawn=((), (0,), ())), B)
    with pytest.raises(StoreIsOlder):
        sites[B].exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True)
    sites[B].exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=False)
    sites[B].store.withdrawals.withdraw(np.array([0]))
    assert (
        sites[B].exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True).checked().n_examples
        == 11
    )
    assert sites[B].store.withdrawals.forgotten_in == b""


def test_what_was_withdrawn_before_a_later_exchange_is_settled(committed):
    """A server that came from a backup knows an earlier commit: the site forgot nothing."""
    sites, _, commit = committed
    sites[B].store.withdrawals.withdraw(np.array([0]))
    later = exchange(sites, epoch_of(sites, number=2))
    for site in sites:
        site.apply_commit(later.record)
    earlier = commit.anew(withdrawn=((), (0,), ()))
    options = {"node_id": 1, "run_id": 1, "with_key": True, "committed": earlier.record}
    assert sites[B].exchange.offer(FEDERATION, **options).checked().n_examples == 11


def test_what_was_withdrawn_does_not_come_back(committed):
    sites, _, commit = committed
    gone = withdrawn(sites, commit, A, [0, 1, 2])
    for site in sites[1:]:
        site.apply_commit(gone.record)
    with pytest.raises(CommitRefused):
        sites[B].apply_commit(withdrawn(sites, gone, A, [0, 1]).record)


def test_examples_are_withdrawn_one_after_another(committed):
    sites, _, commit = committed
    mine = dict(sites[B].holdings(commit).senders)[A].tolist()
    for n in range(1, len(mine) + 1):
        commit = withdrawn(sites, commit, A, mine[:n])
        sites[B].apply_commit(commit.record)
        assert len(sites[B].received_examples(commit, A)[0]) == len(mine) - n


def test_a_withdrawn_example_is_not_sent(three, epoch):
    three[A].store.withdrawals.withdraw(three[A].store.manifests.newest().share_rows[:1])
    with pytest.raises(DataChanged):
        sent_by(three[A], epoch)
    later = epoch_of(three, number=2)
    assert later.sites[A].n_shareable == epoch.sites[A].n_shareable - 1
    exchange(three, later)


def test_a_withdrawn_private_example_holds_up_nothing(three, epoch):
    three[A].store.withdrawals.withdraw(np.array([1]))
    assert not three[A].data.shareable[1]
    exchange(three, epoch)


def test_withdrawals_are_reported_by_share_number(committed):
    sites, _, commit = committed
    manifest = sites[A].store.manifests.newest()
    sites[A].store.withdrawals.withdraw(np.array([manifest.share_rows[2], 1, 3]))
    found = sites[A].store.withdrawals.since(manifest)
    assert found.numbers == (2,)
    assert found.n_private == 2
    fresh = Site(sites[A].store, sites[A].data, "a", None, SIMULATED)
    with pytest.raises(CommitRefused):  # nothing is trained on until all know
        fresh.holdings(commit)
    known = withdrawn(sites, commit, A, [2], 2)
    for site in (fresh, *sites[1:]):
        site.apply_commit(known.record)
    sites = [fresh, *sites[1:]]
    assert sum(s.holdings(known).coverage for s in sites) == pytest.approx(known.n_examples)


def test_who_withdrew_everything_takes_part_in_nothing(committed):
    sites, _, commit = committed
    epoch = epoch_of(sites, number=2)
    sites[A].store.withdrawals.withdraw_everything()
    for call in (
        lambda: sites[A].exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=False),
        lambda: sites[A].exchange.send(epoch.record, [B], 0),
        lambda: sites[A].exchange.receive(epoch.record, []),
        lambda: sites[A].apply_commit(commit.record),
    ):
        with pytest.raises(SiteWithdrew):
            call()
    assert sites[A].store.received.counts() == []
