"""What is withdrawn or taken by a commit is deleted from a store, and overwritten."""

import sqlite3

import numpy as np
import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.protocol.commit_fields import Member
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.site.database import FILE
from fedcommons.federate.site.store import Store
from tests.federate.site.stores import (
    EPOCH,
    SENDERS,
    commit_of,
    enter,
    files,
    in_child,
    manifest_of,
    occurrences,
    receive,
)


def test_withdrawing_again_withdraws_nothing(store):
    store.manifests.add(manifest_of())
    assert store.withdrawals.withdraw(np.array([1, 4, 4])) == 2
    assert store.withdrawals.withdraw(np.array([1, 4])) == 0
    assert store.withdrawals.withdraw(np.array([4, 5])) == 1
    noted = [(e.event, e.examples) for e in store.ledger.entries()]
    assert noted == [("withdrawn", 2), ("withdrawn", 1)]


def test_only_rows_that_are_there_can_be_withdrawn(store):
    with pytest.raises(StoreError, match="offered nothing"):
        store.withdrawals.withdraw(np.array([0]))
    store.manifests.add(manifest_of())
    for wrong in (-1, 6):
        with pytest.raises(StoreError, match=f"0 to 5, got {wrong}"):
            store.withdrawals.withdraw(np.array([0, wrong]))
    assert store.withdrawals.fingerprints() == set()


def test_what_a_commit_takes_is_overwritten(store):
    """Withdrawn examples, senders that left and epoch keys are in no file afterwards."""
    first, second = receive(store, SENDERS[0]), receive(store, SENDERS[1], seed=1)
    public = store.keyring.fresh_key()
    private = store.keyring.private_key(public)
    assert private is not None
    assert private in files(store)
    assert occurrences(store, first.x) + occurrences(store, second.x) == 8
    reader = Store(store.folder)  # another process may look at it
    store.apply(commit_of(pairs=((0, 2),), withdrawn=((1, 3), (), ())), me=2)
    assert private not in files(store)
    assert occurrences(store, second.x) == 0
    assert occurrences(store, first.x[[1, 3]]) == 0
    assert occurrences(store, first.x[[0, 2]]) == 2
    reader.close()
    assert [part.numbers.tolist() for part in store.received.chunks(EPOCH, SENDERS[0])] == [[0, 2]]
    store.check()


def test_large_chunks_are_overwritten_too(store):
    """Chunks of many pages, some of which a commit takes."""
    rng = np.random.default_rng(0)
    x = np.frombuffer(rng.bytes(3000 * 64), np.uint8).reshape(3000, 64)
    examples = SharedExamples(np.arange(3000), np.zeros(3000, np.int64), x)
    store.receive(1, EPOCH, SENDERS[0], [(0, examples, examples.pack())])
    members = tuple(Member(m.site, m.identity, 3000, 3000, m.manifest) for m in commit_of().members)
    gone = tuple(range(0, 3000, 7))
    store.apply(commit_of(members=members, pairs=((0, 2),), withdrawn=(gone, (), ())), me=2)
    found = files(store)
    assert sum(x[i].tobytes() in found for i in gone) == 0
    # A row that crosses from page to page is not there in one piece.
    assert sum(x[i].tobytes() in found for i in range(3000) if i % 7) > 2400
    store.check()


def test_withdrawing_everything_deletes_what_was_received(store):
    examples = receive(store)
    private = store.keyring.private_key(store.keyring.fresh_key())
    store.withdrawals.withdraw_everything()
    assert store.withdrawals.everything
    assert store.received.counts() == []
    assert occurrences(store, examples.x) == 0
    assert private not in files(store)
    assert [(e.event, e.examples) for e in store.ledger.entries()] == [
        ("received", 4), ("deleted", 4), ("withdrawn", 0),
    ]  # fmt: skip


def test_what_a_killed_process_had_deleted_is_overwritten_at_the_next_opening(store):
    examples = receive(store)
    store.close()
    in_child(store.folder, lambda s, _: s.apply(commit_of(pairs=()), me=2), at="store.wiped:before")
    assert occurrences(store, examples.x) > 0  # in the write-ahead log
    again = Store(store.folder)
    assert again.received.counts() == []
    assert occurrences(again, examples.x) == 0
    again.close()


def test_what_another_reader_holds_on_to_is_said_and_overwritten_later(store, caplog):
    examples = receive(store)
    reader = sqlite3.connect(store.folder / FILE, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT COUNT(*) FROM received").fetchall() == [(1,)]
    store.apply(commit_of(pairs=()), me=2)
    Store(store.folder).close()  # as a deployed site does for every message
    assert occurrences(store, examples.x) > 0
    assert "deleted data are not overwritten yet" in caplog.text
    reader.close()
    Store(store.folder).close()
    assert occurrences(store, examples.x) == 0


def test_the_keys_of_an_exchange_that_was_given_up_are_destroyed(store):
    dead, alive = (
        store.keyring.fresh_key(),
        store.keyring.fresh_key(),
    )  # the second is of an exchange to come
    enter(store, 2, b"another", {})
    assert store.epochs.between(1, 1) == {}
    assert [record for _, record in store.epochs.between(1, 2).values()] == [b"another"]
    store.give_up(1, 2, [dead])
    assert store.keyring.private_key(dead) is None
    assert store.keyring.private_key(alive) is not None


def test_other_processes_are_waited_for_again_after_wiping(store):
    receive(store)
    assert store.database.run("PRAGMA busy_timeout") == [(30_000,)]
