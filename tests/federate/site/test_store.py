"""A store keeps what it is given, for its owner alone."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.site.database import FILE
from fedcommons.federate.site.keyring import MOST_KEYS
from fedcommons.federate.site.store import Store
from tests.federate.site.stores import (
    EPOCH,
    SENDERS,
    chunk_of,
    commit_of,
    enter,
    everything,
    fill,
    receive,
)


def test_everything_is_there_when_it_is_opened_again(store):
    fill(store)
    before = everything(store)
    store.close()
    again = Store(store.folder)
    assert everything(again) == before
    again.close()


def test_what_is_received_comes_out(store):
    one, two = receive(store, chunk=1, seed=1), receive(store, chunk=0, seed=2)
    found = list(store.received.chunks(EPOCH, SENDERS[0]))
    assert [part.pack() for part in found] == [two.pack(), one.pack()]  # in the order of chunks
    assert store.received.n_examples(EPOCH, SENDERS[0]) == 8
    assert store.received.n_examples(EPOCH, SENDERS[1]) == 0
    assert store.received.n_examples(b"f" * 32, SENDERS[0]) == 0


def test_a_chunk_is_received_once(store):
    first = receive(store, seed=1)
    before = everything(store)
    receive(store, seed=1)
    receive(store, seed=2)
    assert everything(store) == before
    assert [part.pack() for part in store.received.chunks(EPOCH, SENDERS[0])] == [first.pack()]


def test_a_message_is_received_whole_or_not_at_all(store):
    good, packed = chunk_of(1)
    with pytest.raises(TypeError):
        store.receive(1, EPOCH, SENDERS[0], [(0, good, packed), (1, good, None)])
    assert store.received.counts() == []
    assert list(store.ledger.entries()) == []


def test_keys_of_epochs_that_never_came_about_do_not_pile_up(store):
    publics = [store.keyring.fresh_key() for _ in range(3 * MOST_KEYS)]
    known = [store.keyring.private_key(public) is not None for public in publics]
    assert known == [False] * (2 * MOST_KEYS) + [True] * MOST_KEYS


def test_highest_epoch_rises_with_epochs_and_commits(store):
    assert store.epochs.highest() == (0, b"")
    enter(store, 3, b"record", {})
    assert store.epochs.highest()[0] == 3
    store.apply(commit_of(number=5), me=2)
    assert store.epochs.highest() == (5, EPOCH)
    assert store.epochs.record(EPOCH) == b""


def test_a_peer_keeps_the_key_of_its_first_use(store):
    enter(store, 1, b"one", {"s0": "first"})
    enter(store, 2, b"two", {"s0": "second", "s1": "first of another"})
    assert store.keyring.trusted_peers() == {"s0": "first", "s1": "first of another"}


def test_nobody_else_may_read_it(tmp_path):
    folder = tmp_path / "deep" / "store"
    folder.mkdir(parents=True, mode=0o755)
    before = os.umask(0)
    try:
        store = Store(folder, create=True)
        fill(store)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert set(modes) == {FILE, f"{FILE}-wal", f"{FILE}-shm"}
    assert set(modes.values()) == {0o600}
    store.close()


def foreign(path: Path, *statements: str) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE t (a)"],
        ["CREATE TABLE t (a)", "PRAGMA application_id = 12345"],
        ["PRAGMA application_id = 12345"],
    ],
    ids=["no application", "another application", "another application, empty"],
)
def test_a_database_of_another_application_is_refused_and_left_alone(tmp_path, statements):
    path = tmp_path / "store" / FILE
    foreign(path, *statements)
    before = path.read_bytes()
    for create in (False, True):
        with pytest.raises(StoreError, match="not made by fedcommons"):
            Store(path.parent, create=create)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + bytes(99)])
def test_what_is_no_database_is_refused(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StoreError):
        Store(tmp_path, create=True)


def test_a_store_that_is_not_there_is_made_only_if_asked(tmp_path):
    with pytest.raises(StoreError, match="is missing"):
        Store(tmp_path / "store")
    assert not (tmp_path / "store").exists()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made"):
        Store(tmp_path / "file" / "store", create=True)
    (tmp_path / FILE).touch()  # a creation that was killed at its first step
    with pytest.raises(StoreError):
        Store(tmp_path)
    Store(tmp_path, create=True).close()
    Store(tmp_path).close()


def test_a_folder_with_other_things_in_it_keeps_its_mode(tmp_path):
    (tmp_path / "store").mkdir(mode=0o755)
    (tmp_path / "store").chmod(0o755)
    (tmp_path / "store" / "notes.txt").touch()
    Store(tmp_path / "store", create=True).close()
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "store" / FILE).stat().st_mode) == 0o600
