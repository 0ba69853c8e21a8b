"""A store keeps what it promised, whenever its process is killed."""

import os
from collections.abc import Callable

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
    everything,
    fill,
    forked,
    in_child,
    manifest_of,
    receive,
)

STEPS: dict[str, Callable[[Store], object]] = {
    "store.created": lambda s: None,
    "store.joined": lambda s: s.join("hospitals"),
    "store.manifest": lambda s: s.manifests.add(manifest_of()),
    "store.key": lambda s: s.keyring.fresh_key(),
    "store.approved": lambda s: s.given.approve(2),
    "store.epoch": lambda s: enter(s, 1, b"record", {"s0": SENDERS[0]}),
    "store.sent": lambda s: s.ledger.note_sent(1, [(SENDERS[0], 0, 4, 9), (SENDERS[1], 0, 4, 9)]),
    "store.received": lambda s: receive(s, chunk=5),
    "store.commit": lambda s: s.apply(commit_of(pairs=()), me=2),
    "store.receipts": lambda s: s.ledger.note_receipts(1, [(SENDERS[0], 4, b"signed")]),
    "store.withdrawn": lambda s: s.withdrawals.withdraw(np.array([2])),
    "store.withdrew_all": lambda s: s.withdrawals.withdraw_everything(),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_killed_write_happened_or_did_not(tmp_path, name):
    """Killed before its commit a step left no trace; killed after, it is there."""
    state = {}
    for when in ("before", "after"):
        folder = tmp_path / when
        if name != "store.created":
            store = Store(folder, create=True)
            receive(store)
            store.manifests.add(manifest_of())
            if name == "store.manifest":
                store.database.run("DELETE FROM manifest")
            was = everything(store)[1:]  # but for the identity
            store.close()
        in_child(folder, lambda s, _: STEPS[name](s), at=f"{name}:{when}")
        found = Store(folder, create=True)
        state[when] = everything(found)[1:]
        STEPS[name](found)  # done again, all the same
        found.check()
        found.close()
        if name == "store.created":
            assert found.folder == folder
    if name != "store.created":
        assert without_times(state["before"]) == without_times(was)
        assert without_times(state["after"]) != without_times(was)


def without_times(state: tuple[object, ...]) -> object:
    ledger = [(e.event, e.peer, e.chunk, e.examples) for e in state[-1]]
    return (*state[:-1], ledger)


def test_what_was_acknowledged_survives_a_kill_at_any_instant(tmp_path):
    """60 kills at random instants of a process that receives, commits and withdraws."""
    rng = np.random.default_rng(4)

    def work(store, say):
        if store.manifests.newest() is None:
            store.manifests.add(manifest_of(256))
        done = len(store.received.rows())
        for k in range(done, 10_000):
            receive(store, chunk=k, seed=k)
            say(b"r")
            if k % 3 == 0:
                serial = store.database.run("SELECT COUNT(*) FROM ledger WHERE event = 'commit'")[
                    0
                ][0]
                store.apply(
                    commit_of(
                        serial=serial,
                        members=tuple(
                            Member(m.site, m.identity, 1 << 20, 1 << 20, m.manifest)
                            for m in commit_of().members
                        ),
                        withdrawn=((4 * k,), (), ()),
                    ),
                    me=2,
                )
                say(b"c")
            if k % 5 == 0:
                store.withdrawals.withdraw(np.array([k % 256]))
                say(b"w")

    folder = tmp_path / "store"
    received = commits = 0
    identity = None
    for kill in range(60):  # the odd ones may come while the store is made or opened
        after = float(rng.uniform(0, 0.02))
        said = in_child(folder, work, after=after, words=0 if kill % 2 else 6)
        if not (folder / FILE).exists():
            continue
        store = Store(folder, create=True)
        store.check()
        if said:
            identity = identity or store.identity
            assert store.identity == identity
        noted = [e.event for e in store.ledger.entries()]
        n = len(store.received.rows())
        # What was said is there; at most one more step was finished and not yet said.
        assert received + said.count(b"r") <= n <= received + said.count(b"r") + 1
        assert noted.count("received") == n
        assert commits + said.count(b"c") <= noted.count("commit") <= commits + said.count(b"c") + 1
        n_examples = sum(len(part) for part in store.received.chunks(EPOCH, SENDERS[0]))
        deleted = sum(e.examples for e in store.ledger.entries() if e.event == "deleted")
        assert n_examples == store.received.n_examples(EPOCH, SENDERS[0]) == 4 * n - deleted
        received, commits = n, noted.count("commit")
        store.close()
    assert received >= 20
    assert commits >= 5


def test_processes_that_make_a_store_together_agree_on_its_identity(tmp_path):
    folder = tmp_path / "store"
    children = []
    for _ in range(6):
        child = forked()
        if child == 0:
            code = 1
            try:
                store = Store(folder, create=True)
                for chunk in range(5):
                    receive(store, chunk=chunk, seed=chunk)
                (tmp_path / f"{os.getpid()}").write_text(store.identity.name)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    assert len({(tmp_path / f"{child}").read_text() for child in children}) == 1
    store = Store(folder)
    store.check()
    assert store.received.n_examples(EPOCH, SENDERS[0]) == 20
    assert len(list(store.ledger.entries())) == 5
    store.close()


def test_a_full_disk_fails_the_step_and_nothing_else(store):
    fill(store)
    before = everything(store)
    ((pages,),) = store.database.run("PRAGMA page_count")
    store.database.run(f"PRAGMA max_page_count = {pages}")
    large = SharedExamples(np.arange(1000), np.zeros(1000, np.int64), np.ones((1000, 64), np.uint8))
    with pytest.raises(StoreError, match="full"):
        store.receive(1, EPOCH, SENDERS[0], [(7, large, large.pack())])
    assert everything(store) == before
    store.database.run("PRAGMA max_page_count = 1000000")
    receive(store, chunk=8)


def test_a_transaction_is_on_the_disk_when_it_returns(store):
    """As SQLite promises it with these settings, whatever happens to the machine."""
    assert store.database.run("PRAGMA journal_mode") == [("wal",)]
    assert store.database.run("PRAGMA synchronous") == [
        (2,)
    ]  # FULL: the log is synced at every commit
