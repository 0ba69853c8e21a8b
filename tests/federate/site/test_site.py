"""A site goes under a commit that follows from what it knows, and refuses every other."""

from dataclasses import replace

import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.refusals import (
    CommitRefused,
    RosterRefused,
)
from tests.federate.conftest import committed_to, epoch_of, sent_by, withdrawn
from tests.federate.site.envelopes import (
    A,
    B,
    C,
)


def test_an_older_commit_is_refused(committed):
    sites, _, commit = committed
    later = commit.anew()
    sites[A].apply_commit(later.record)
    for record in (
        commit.record,
        commit.anew(code="owner-corrected", owner_share=(1.0,) * 3).record,
    ):
        with pytest.raises(CommitRefused):
            sites[A].apply_commit(record)
    assert sites[A].store.commit_record() == (later.digest, later.record)


def test_a_commit_of_an_epoch_before_the_last_is_refused(three):
    first = epoch_of(three, number=1)
    three[A].exchange.receive(epoch_of(three, number=2).record, [])
    with pytest.raises(CommitRefused):
        three[A].apply_commit(Commit.of(first, ()).record)


def test_a_commit_of_another_epoch_of_that_number_is_refused(three, epoch):
    three[A].exchange.receive(epoch.record, [])
    with pytest.raises(CommitRefused):
        three[A].apply_commit(replace(Commit.of(epoch, ()), seed=26).encode())


@pytest.mark.parametrize("changes", [{"seed": 26}, {"copies": 2}], ids=str)
def test_a_commit_must_say_what_its_epoch_said(three, epoch, changes):
    three[A].exchange.receive(epoch.record, [])
    with pytest.raises(CommitRefused):
        three[A].apply_commit(replace(Commit.of(epoch, ()), **changes).record)


def test_a_commit_must_have_the_numbers_that_were_offered(three, epoch):
    three[A].exchange.receive(epoch.record, [])
    commit = Commit.of(epoch, ())
    members = (commit.members[0], replace(commit.members[1], n_shareable=5), commit.members[2])
    with pytest.raises(CommitRefused):
        three[A].apply_commit(replace(commit, members=members).record)


def test_a_commit_that_gives_what_the_site_does_not_have_is_refused(three, epoch):
    receipts, _ = three[B].exchange.receive(epoch.record, [sent_by(three[A], epoch)[B]])
    commit = committed_to(epoch, receipts)
    with pytest.raises(CommitRefused):
        three[B].apply_commit(replace(commit, pairs=((A, B), (C, B))).record)
    assert three[B].store.commit_record() == (b"", b"")
    three[B].apply_commit(commit.record)


def test_a_commit_deletes_what_it_does_not_give(committed):
    sites, epoch, commit = committed
    to_b = dict(sites[B].holdings(commit).senders)
    gone = withdrawn(sites, commit, A, to_b[A].tolist()[:1]).without(C)
    sites[B].apply_commit(gone.record)
    assert sites[B].store.received.counts() == [(epoch.sites[A].identity, len(to_b[A]) - 1)]
    x, _ = sites[B].received_examples(gone, A)
    assert len(x) == len(to_b[A]) - 1
    deleted = [e for e in sites[B].store.ledger.entries() if e.event == "deleted"]
    assert sorted((e.peer, e.examples) for e in deleted) == sorted(
        [(epoch.sites[A].identity, 1), (epoch.sites[C].identity, len(to_b[C]))]
    )


def test_who_left_deletes_and_stays_out(committed):
    sites, _, commit = committed
    left = commit.without(C)
    for _ in range(2):  # the second time it is under that commit already
        with pytest.raises(CommitRefused):
            sites[C].apply_commit(left.record)
    assert sites[C].store.received.counts() == []


def test_who_is_not_in_a_later_roster_deletes_what_it_holds(committed, make_site):
    sites, _, commit = committed
    without = epoch_of([sites[A], sites[B], make_site("d")], number=2)
    with pytest.raises(CommitRefused, match="no member any more"):
        sites[C].apply_commit(Commit.of(without, (), after=commit).record)
    assert sites[C].store.received.counts() == []
    assert sites[C].store.keyring.trusted_peers().keys() == {"a", "b", "c"}  # not the newcomer
    with pytest.raises(CommitRefused):
        sites[C].apply_commit(commit.record)


def test_a_later_roster_with_a_changed_key_deletes_nothing(committed, make_site, tmp_path):
    sites, _, _ = committed
    held = sites[C].store.received.counts()
    (tmp_path / "a").rename(tmp_path / "old a")
    impostor = epoch_of([make_site("a"), sites[B], make_site("d")], number=2)
    with pytest.raises(RosterRefused):
        sites[C].apply_commit(Commit.of(impostor, ()).record)
    assert sites[C].store.received.counts() == held


def test_a_member_that_left_need_not_be_pinned_any_more(committed):
    sites, _, commit = committed
    sites[A].peers = {"b": commit.members[B].identity}
    sites[A].apply_commit(commit.without(C).record)


def test_a_commit_with_a_changed_key_is_refused(three, epoch):
    three[A].exchange.receive(epoch.record, [])
    commit = Commit.of(epoch, ())
    impostor = replace(commit.members[C], identity=Identity.create().name)
    with pytest.raises(RosterRefused):
        three[A].apply_commit(replace(commit, members=(*commit.members[:C], impostor)).record)


def test_what_is_held_must_be_what_was_received(committed):
    sites, _, commit = committed
    sender, numbers = sites[A].holdings(commit).senders[0]
    sites[A].store.database.run(
        "DELETE FROM received WHERE sender = ?", (commit.members[sender].identity,)
    )
    assert len(numbers)
    with pytest.raises(StoreError):
        sites[A].received_examples(commit, sender)
