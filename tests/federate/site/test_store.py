"""The store keeps what it promised, whatever kills it, and notices when it cannot."""

import os
import signal
import sqlite3
import stat
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit, Member
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.site.database import FILE
from fedcommons.federate.site.keyring import MOST_KEYS
from fedcommons.federate.site.manifests import Manifest
from fedcommons.federate.site.store import Store

EPOCH = b"e" * 32
SENDERS = ("aa" * 32, "bb" * 32)
Work = Callable[[Store, Callable[[bytes], object]], object]


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store", create=True)
    yield store
    store.close()


def chunk_of(seed: int, first: int = 0, n: int = 4) -> tuple[SharedExamples, bytes]:
    rng = np.random.default_rng(seed)
    x = np.frombuffer(rng.bytes(n * 64), np.uint8).reshape(n, 64)
    examples = SharedExamples(np.arange(first, first + n), rng.integers(0, 9, size=n), x)
    return examples, examples.pack()


def receive(
    store: Store, sender: str = SENDERS[0], chunk: int = 0, seed: int = 0
) -> SharedExamples:
    examples, packed = chunk_of(seed, first=4 * chunk)
    store.receive(1, EPOCH, sender, [(chunk, examples, packed)])
    return examples


def commit_of(**changes: object) -> Commit:
    """Sites 0 and 1 gave to site 2, in the epoch above."""
    names = (*SENDERS, "cc" * 32)
    fields = dict(
        federation="hospitals",
        number=1,
        serial=0,
        epoch=EPOCH.hex(),
        seed=0,
        copies=1,
        members=tuple(Member(f"s{i}", name, 8, 8, "00" * 32) for i, name in enumerate(names)),
        present=(True,) * 3,
        pairs=((0, 2), (1, 2)),
        withdrawn=((),) * 3,
        withdrawn_private=(0,) * 3,
    )
    return Commit(**{**fields, **changes})


def manifest_of(n: int = 6) -> Manifest:
    rng = np.random.default_rng(5)
    return Manifest(
        "",
        b"c" * 32,
        b"d" * 32,
        np.ones(n, np.bool_),
        np.arange(n) % 2 == 0,
        np.frombuffer(rng.bytes(16 * n), np.uint8).reshape(n, 16),
    )


def fill(store: Store) -> None:
    """Something of every kind."""
    store.join("hospitals")
    store.manifests.add(manifest_of())
    store.epochs.enter(1, b"the record of an epoch", {"s0": SENDERS[0], "s1": SENDERS[1]})
    for place, sender in enumerate(SENDERS):
        for chunk in range(2):
            receive(store, sender, chunk, seed=10 * place + chunk)
    store.ledger.note_sent(1, [(SENDERS[0], 0, 4, 500), (SENDERS[1], 0, 2, 300)])
    store.apply(commit_of(withdrawn=((1,), (), ())), me=2)
    store.ledger.note_receipts(1, [(SENDERS[0], 4, b"signed")])
    store.withdrawals.withdrawals.withdraw(np.array([1, 4]))
    store.keyring.fresh_key()


def everything(store: Store) -> tuple[object, ...]:
    """All that can be read of a store, after all checks."""
    store.check()
    manifest = store.manifests.newest()
    epochs = {1: store.epochs.record(store.epochs.highest()[1])}
    return (
        store.identity,
        store.federation,
        store.withdrawals.everything,
        store.keyring.trusted_peers(),
        None if manifest is None else (manifest.stamp, manifest.content, manifest.digest),
        None if manifest is None else manifest.live.tobytes() + manifest.shareable.tobytes(),
        None if manifest is None else manifest.fingerprints.tobytes(),
        store.epochs.highest(),
        epochs,
        store.commit_record(),
        store.withdrawals.fingerprints(),
        store.received.counts(),
        [part.pack() for sender in SENDERS for part in store.received.chunks(EPOCH, sender)],
        [
            store.received.original_digest(EPOCH, sender, chunk)
            for sender in SENDERS
            for chunk in range(3)
        ],
        store.database.rows("epoch_keys"),
        list(store.ledger.entries()),
    )


def files(store: Store) -> bytes:
    """All bytes of the store's folder."""
    return b"".join(path.read_bytes() for path in sorted(store.folder.rglob("*")) if path.is_file())


# What is kept


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
    store.epochs.enter(3, b"record", {})
    assert store.epochs.highest()[0] == 3
    store.apply(commit_of(number=5), me=2)
    assert store.epochs.highest() == (5, EPOCH)
    assert store.epochs.record(EPOCH) == b""


def test_a_peer_keeps_the_key_of_its_first_use(store):
    store.epochs.enter(1, b"one", {"s0": "first"})
    store.epochs.enter(2, b"two", {"s0": "second", "s1": "first of another"})
    assert store.keyring.trusted_peers() == {"s0": "first", "s1": "first of another"}


# Who may use it


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


def test_a_store_of_another_version_is_refused(store):
    store.database.run("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(StoreError, match="must have version 2, got 99"):
        Store(store.folder)


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


# Withdrawal and deletion


def test_withdrawing_again_withdraws_nothing(store):
    store.manifests.add(manifest_of())
    assert store.withdrawals.withdrawals.withdraw(np.array([1, 4, 4])) == 2
    assert store.withdrawals.withdrawals.withdraw(np.array([1, 4])) == 0
    assert store.withdrawals.withdrawals.withdraw(np.array([4, 5])) == 1
    noted = [(e.event, e.examples) for e in store.ledger.entries()]
    assert noted == [("withdrawn", 2), ("withdrawn", 1)]


def test_only_rows_that_are_there_can_be_withdrawn(store):
    with pytest.raises(StoreError, match="offered nothing"):
        store.withdrawals.withdrawals.withdraw(np.array([0]))
    store.manifests.add(manifest_of())
    for wrong in (-1, 6):
        with pytest.raises(StoreError, match=f"0 to 5, got {wrong}"):
            store.withdrawals.withdrawals.withdraw(np.array([0, wrong]))
    assert store.withdrawals.fingerprints() == set()


def occurrences(store: Store, rows: np.ndarray) -> int:
    """How many of these rows leave a trace of 16 bytes in any file of the store."""
    found = files(store)
    return sum(
        any(row.tobytes()[i : i + 16] in found for i in range(0, 64, 16))
        for row in np.asarray(rows)
    )


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
    start = time.monotonic()
    store.apply(commit_of(pairs=()), me=2)
    Store(store.folder).close()  # as a deployed site does for every message
    assert time.monotonic() - start < 10  # nobody waits for a backup
    assert occurrences(store, examples.x) > 0
    assert "what was deleted is not overwritten yet" in caplog.text
    reader.close()
    Store(store.folder).close()
    assert occurrences(store, examples.x) == 0


# The ledger


def test_the_ledger_tells_what_happened_in_order(store):
    fill(store)
    entries = list(store.ledger.entries())
    assert [e.entry for e in entries] == list(range(1, len(entries) + 1))
    assert [e.event for e in entries] == [
        *["received"] * 4, "sent", "sent", "deleted", "commit", "receipt", "withdrawn",
    ]  # fmt: skip
    assert [e.examples for e in entries] == [4, 4, 4, 4, 4, 2, 1, 23, 4, 2]


def test_the_same_thing_is_noted_once(store):
    for _ in range(2):
        store.ledger.note_sent(1, [(SENDERS[0], 0, 4, 500)])
    store.ledger.note_sent(2, [(SENDERS[0], 0, 4, 500)])
    assert [e.epoch for e in store.ledger.entries()] == [1, 2]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET examples = 5 WHERE entry = 1",
        "DELETE FROM ledger WHERE entry = 1",
        "DELETE FROM ledger",
        "INSERT OR REPLACE INTO ledger SELECT * FROM ledger WHERE entry = 1",
        "REPLACE INTO ledger SELECT entry, 0, event, epoch, peer, 9, 9, 9, evidence, chain "
        "FROM ledger WHERE entry = 1",
    ],
)
def test_the_ledger_is_append_only(store, statement):
    fill(store)
    before = list(store.ledger.entries())
    db = sqlite3.connect(store.folder / FILE)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(statement)
    db.close()
    assert list(store.ledger.entries()) == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET examples = 5 WHERE entry = 2",
        "UPDATE ledger SET time = 0 WHERE entry = 10",
        "DELETE FROM ledger WHERE entry = 2",
        "DELETE FROM ledger WHERE entry = 1",
        "DELETE FROM ledger WHERE entry = 10",
        "DELETE FROM ledger",
    ],
)
def test_a_ledger_that_was_changed_behind_its_back_is_noticed(store, statement):
    fill(store)
    for trigger in ("no_update", "no_delete"):
        store.database.run(f"DROP TRIGGER {trigger}")
    store.database.run(statement)
    with pytest.raises(StoreError, match="ledger"):
        list(store.ledger.entries())
    with pytest.raises(StoreError):
        store.check()


# Damage


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("about", "value"), ("about", "name"), ("peers", "identity"), ("peers", "site"),
        ("manifest", "stamp"), ("manifest", "content"), ("manifest", "live"),
        ("manifest", "shareable"), ("manifest", "fingerprints"), ("epoch_keys", "public"),
        ("epoch_keys", "private"), ("epochs", "digest"), ("epochs", "record"), ("epochs", "number"),
        ("commits", "digest"), ("commits", "record"), ("withdrawals", "fingerprint"),
        ("withdrawals", "row"), ("received", "sender"), ("received", "n"), ("received", "digest"),
        ("received", "original"), ("received", "content"), ("received", "chunk"),
    ],
)  # fmt: skip
def test_another_value_in_any_column_is_noticed(store, table, column):
    fill(store)
    everything(store)
    other = "X'00'" if column not in ("number", "row", "n", "chunk") else "77"
    store.database.run(
        f"UPDATE {table} SET {column} = {other} "  # noqa: S608 (names of the table above)
        f"WHERE seal = (SELECT MAX(seal) FROM {table})"
    )
    with pytest.raises(StoreError):
        store.check()
    store.close()
    again = Store(store.folder)
    with pytest.raises(StoreError):
        everything(again)
    again.close()


def test_a_flipped_bit_is_noticed_or_changes_nothing(store):
    """2,000 random bits of the database, most of them in bytes that are in use."""
    fill(store)
    before = everything(store)
    store.close()
    path = store.folder / FILE
    original = path.read_bytes()
    rng = np.random.default_rng(3)
    used = np.flatnonzero(np.frombuffer(original, np.uint8))
    places = np.concatenate([rng.choice(used, 1600), rng.integers(0, len(original), 400)])
    noticed = 0
    for place in places.tolist():
        damaged = bytearray(original)
        damaged[place] ^= 1 << int(rng.integers(8))
        for leftover in store.folder.iterdir():
            leftover.unlink()
        path.write_bytes(damaged)
        try:
            found = Store(store.folder)
        except StoreError:
            noticed += 1
            continue
        try:
            assert everything(found) == before, place
        except StoreError:
            noticed += 1
        finally:
            found.close()
    assert noticed > 1000


@pytest.mark.parametrize(
    "table",
    ["about", "peers", "manifest", "epochs", "commits", "withdrawals", "received", "ledger"],
)
def test_a_table_that_lost_its_rows_is_noticed(store, table):
    """Its page says that it has no cells."""
    fill(store)
    ((page,),) = store.database.run("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
    store.close()
    path = store.folder / FILE
    damaged = bytearray(path.read_bytes())
    start = 4096 * (page - 1)
    damaged[start + 3 : start + 5] = b"\0\0"
    path.write_bytes(damaged)
    if table == "received":  # it may be large: read when it is needed
        found = Store(store.folder)
        with pytest.raises(StoreError, match="damaged"):
            found.check()
        found.close()
    else:
        with pytest.raises(StoreError, match="damaged"):
            Store(store.folder)


def test_a_truncated_database_is_noticed(store):
    fill(store)
    store.close()
    path = store.folder / FILE
    original = path.read_bytes()
    for length in (100, 4096, len(original) // 2, len(original) - 4096):
        path.write_bytes(original[:length])
        with pytest.raises(StoreError):
            everything(Store(store.folder))


# Death


def forked() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with BLAS threads about
        return os.fork()


def in_child(
    folder: Path, work: Work, *, at: str = "", after: float = 0.0, words: int = 0
) -> bytes:
    """Let a process work on the store until it is killed; what it said.

    It is killed at a point, or some time after it said that many words.
    """
    read, write = os.pipe()
    child = forked()
    if child == 0:
        os.close(read)
        try:
            durable.reached = lambda point: point == at and os.kill(os.getpid(), signal.SIGKILL)
            work(Store(folder, create=True), lambda said: os.write(write, said))
        finally:
            os._exit(1)
    os.close(write)
    said = b""
    if not at:
        while len(said) < words and (word := os.read(read, 1)):
            said += word
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    while part := os.read(read, 1 << 16):
        said += part
    os.close(read)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    return said


STEPS: dict[str, Callable[[Store], object]] = {
    "store.created": lambda s: None,
    "store.joined": lambda s: s.join("hospitals"),
    "store.manifest": lambda s: s.manifests.add(manifest_of()),
    "store.key": lambda s: s.keyring.fresh_key(),
    "store.epoch": lambda s: s.epochs.enter(1, b"record", {"s0": SENDERS[0]}),
    "store.sent": lambda s: s.ledger.note_sent(1, [(SENDERS[0], 0, 4, 9), (SENDERS[1], 0, 4, 9)]),
    "store.received": lambda s: receive(s, chunk=5),
    "store.commit": lambda s: s.apply(commit_of(pairs=()), me=2),
    "store.receipts": lambda s: s.ledger.note_receipts(1, [(SENDERS[0], 4, b"signed")]),
    "store.withdrawn": lambda s: s.withdrawals.withdraw(np.array([2])),
    "store.withdrawals.everything": lambda s: s.withdrawals.withdraw_everything(),
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
                store.withdrawals.withdrawals.withdraw(np.array([k % 256]))
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


def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_the_return(
    tmp_path, monkeypatch
):
    done = []
    fsync, replace_file = os.fsync, Path.replace

    def note_sync(descriptor):
        fsync(descriptor)
        done.append(("sync", Path(f"/proc/self/fd/{descriptor}").resolve().name))

    def note_replace(path, target):
        done.append(("replace", target.name))
        return replace_file(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    durable.write_file(tmp_path / "state.json", b"{}", "server.state")
    assert done == [
        ("sync", ".state.json.part"),
        ("replace", "state.json"),
        ("sync", tmp_path.name),
    ]
    done.clear()
    durable.remove_file(tmp_path / "state.json", "server.state")
    durable.make_folder(tmp_path / "commits")
    assert done == [("sync", tmp_path.name)] * 2


def test_a_folder_with_other_things_in_it_keeps_its_mode(tmp_path):
    (tmp_path / "store").mkdir(mode=0o755)
    (tmp_path / "store").chmod(0o755)
    (tmp_path / "store" / "notes.txt").touch()
    Store(tmp_path / "store", create=True).close()
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "store" / FILE).stat().st_mode) == 0o600


def test_the_keys_of_an_exchange_that_was_given_up_are_destroyed(store):
    dead, alive = (
        store.keyring.fresh_key(),
        store.keyring.fresh_key(),
    )  # the second is of an exchange to come
    store.epochs.enter(2, b"another", {})
    assert store.epochs.between(1, 1) == {}
    assert [record for _, record in store.epochs.between(1, 2).values()] == [b"another"]
    store.give_up(1, 2, [dead])
    assert store.keyring.private_key(dead) is None
    assert store.keyring.private_key(alive) is not None


def test_other_processes_are_waited_for_again_after_wiping(store):
    receive(store)
    assert store.database.run("PRAGMA busy_timeout") == [(30_000,)]
