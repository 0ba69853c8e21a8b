"""A site's store: its identity, what it received, what it is committed to, and its ledger.

One SQLite database in a folder of its own. Every change is one transaction that is on the disk when
it returns; what was received carries a digest that is checked whenever it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import StoreError
from fedcommons.federate import durable, keys, packing
from fedcommons.federate.packing import Examples
from fedcommons.federate.records import Commit

FILE = "store.sqlite3"
VERSION = 1
APPLICATION = 0x46434F4D  # "FCOM"

SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE peers (site TEXT PRIMARY KEY, identity TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE manifest (
    id INTEGER PRIMARY KEY CHECK (id = 1), stamp TEXT NOT NULL, content BLOB NOT NULL,
    digest BLOB NOT NULL, live BLOB NOT NULL, shareable BLOB NOT NULL, fingerprints BLOB NOT NULL
);
CREATE TABLE epoch_keys (public BLOB PRIMARY KEY, private BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE epochs (number INTEGER PRIMARY KEY, digest BLOB NOT NULL);
CREATE TABLE received (
    epoch BLOB NOT NULL, sender TEXT NOT NULL, chunk INTEGER NOT NULL, n INTEGER NOT NULL,
    digest BLOB NOT NULL, original BLOB NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (epoch, sender, chunk)
);
CREATE TABLE commits (id INTEGER PRIMARY KEY CHECK (id = 1), digest BLOB NOT NULL,
    record BLOB NOT NULL);
CREATE TABLE withdrawals (fingerprint BLOB PRIMARY KEY, row INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE ledger (
    entry INTEGER PRIMARY KEY, time REAL NOT NULL, event TEXT NOT NULL, epoch INTEGER NOT NULL,
    peer TEXT NOT NULL, chunk INTEGER NOT NULL, examples INTEGER NOT NULL, size INTEGER NOT NULL,
    evidence BLOB NOT NULL, chain BLOB NOT NULL
);
CREATE UNIQUE INDEX once ON ledger (event, epoch, peer, chunk, evidence);
CREATE TRIGGER no_update BEFORE UPDATE ON ledger
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON ledger
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One thing that happened to examples: sent, received, receipt, commit, withdrawn, deleted."""

    entry: int
    time: float
    event: str
    epoch: int
    peer: str
    chunk: int
    examples: int
    size: int
    evidence: bytes
    chain: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """How the site's rows were numbered.

    Attributes:
        stamp: the source's stamp when it was last compared.
        content: the digest of the data: all fingerprints and marks.
        digest: of the content and of which rows take part.
        live: (rows,) those that were not withdrawn when they were numbered.
        shareable: (rows,) those that may be shared.
        fingerprints: (rows, 16) bytes.
    """

    stamp: str
    content: bytes
    digest: bytes
    live: BoolArray
    shareable: BoolArray
    fingerprints: np.ndarray

    @property
    def rows(self) -> IntArray:
        """The rows that take part."""
        return np.flatnonzero(self.live)

    @property
    def share_rows(self) -> IntArray:
        """The row of each share number."""
        return np.flatnonzero(self.live & self.shareable)


class Store:
    """A site's store, opened; made if it is new and `create` says so."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        path = folder / FILE
        if not path.exists():
            if not create:
                raise StoreError(f"{folder} is not a site's store: {FILE} is missing")
            self._make_folder()
        try:
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.execute("PRAGMA busy_timeout = 30000")
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"store {path} cannot be used: {error}") from None

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(f"store {self.folder} cannot be made: {error}") from None

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        if application == 0:
            with self._writing("store.created"):
                if self._db.execute("PRAGMA application_id").fetchone()[0] == 0:
                    for statement in _statements(SCHEMA):
                        self._db.execute(statement)
                    self._set("identity", keys.Identity.create().private)
                    self._db.execute(f"PRAGMA application_id = {APPLICATION}")
                    self._db.execute(f"PRAGMA user_version = {VERSION}")
        elif application != APPLICATION:
            raise StoreError(f"{self.folder / FILE} was not made by fedcommons")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise StoreError(f"store {self.folder} must have version {VERSION}, got {version}")

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """One transaction, on the disk when it ends."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        with durable.point(name):
            self._db.execute("COMMIT")

    def _get(self, name: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def _set(self, name: str, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))

    # Who the site is

    @property
    def identity(self) -> keys.Identity:
        private = self._get("identity")
        if private is None:
            raise StoreError(f"store {self.folder} has lost its identity")
        return keys.Identity(private)

    @property
    def federation(self) -> str | None:
        name = self._get("federation")
        return None if name is None else name.decode()

    def join(self, federation: str) -> None:
        """Belong to this federation from now on; a store never changes its federation."""
        if self.federation is None:
            with self._writing("store.joined"):
                self._set("federation", federation.encode())

    def trusted_peers(self) -> dict[str, str]:
        """The keys that sites had in the epochs this site took part in: site -> identity."""
        return dict(self._db.execute("SELECT site, identity FROM peers").fetchall())

    # What it has

    def manifest(self) -> Manifest | None:
        row = self._db.execute(
            "SELECT stamp, content, digest, live, shareable, fingerprints FROM manifest"
        ).fetchone()
        if row is None:
            return None
        stamp, content, digest, live, shareable, fingerprints = row
        return Manifest(
            stamp,
            content,
            digest,
            np.frombuffer(live, np.bool_),
            np.frombuffer(shareable, np.bool_),
            np.frombuffer(fingerprints, np.uint8).reshape(-1, 16),
        )

    def number_rows(self, manifest: Manifest) -> None:
        with self._writing("store.manifest"):
            self._db.execute(
                "INSERT OR REPLACE INTO manifest VALUES (1, ?, ?, ?, ?, ?, ?)",
                (
                    manifest.stamp,
                    manifest.content,
                    manifest.digest,
                    manifest.live.tobytes(),
                    manifest.shareable.tobytes(),
                    manifest.fingerprints.tobytes(),
                ),
            )

    # The exchange

    def fresh_key(self) -> bytes:
        """A new key for the next epoch; its public half."""
        public, private = keys.fresh_epoch_key()
        with self._writing("store.key"):
            self._db.execute("INSERT INTO epoch_keys VALUES (?, ?)", (public, private))
        return public

    def private_key(self, public: bytes) -> bytes | None:
        row = self._db.execute(
            "SELECT private FROM epoch_keys WHERE public = ?", (public,)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def highest_epoch(self) -> tuple[int, bytes]:
        """The number and digest of the highest epoch that the site has seen; 0 if none."""
        row = self._db.execute(
            "SELECT number, digest FROM epochs ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return (0, b"") if row is None else (row[0], bytes(row[1]))

    def enter_epoch(self, number: int, digest: bytes, peers: dict[str, str]) -> None:
        with self._writing("store.epoch"):
            self._db.execute("INSERT INTO epochs VALUES (?, ?)", (number, digest))
            self._db.executemany("INSERT OR IGNORE INTO peers VALUES (?, ?)", peers.items())

    def note_sent(self, epoch: int, sent: list[tuple[str, int, int, int]]) -> None:
        """Into the ledger: (peer, chunk, examples, bytes) of each envelope."""
        with self._writing("store.sent"):
            for peer, chunk, examples, size in sent:
                self._note("sent", epoch, peer, chunk, examples, size)

    def received_digest(self, epoch: bytes, sender: str, chunk: int) -> bytes | None:
        """The digest of a chunk as it came, if it is here."""
        row = self._db.execute(
            "SELECT original FROM received WHERE epoch = ? AND sender = ? AND chunk = ?",
            (epoch, sender, chunk),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def receive(
        self, number: int, epoch: bytes, sender: str, chunks: list[tuple[int, Examples, bytes]]
    ) -> None:
        """Keep chunks of one sender: (chunk, examples, packed). All are there after the return."""
        with self._writing("store.received"):
            for chunk, examples, packed in chunks:
                digest = hashlib.sha256(packed).digest()
                self._db.execute(
                    "INSERT INTO received VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (epoch, sender, chunk, len(examples), digest, digest, packed),
                )
                self._note("received", number, sender, chunk, len(examples), len(packed))

    def n_received(self, epoch: bytes, sender: str) -> int:
        """How many examples of the sender are here."""
        (n,) = self._db.execute(
            "SELECT COALESCE(SUM(n), 0) FROM received WHERE epoch = ? AND sender = ?",
            (epoch, sender),
        ).fetchone()
        return int(n)

    def chunks(self, epoch: bytes, sender: str) -> Iterator[Examples]:
        """What came from the sender, in order; damage is noticed."""
        numbers = self._db.execute(
            "SELECT chunk FROM received WHERE epoch = ? AND sender = ? ORDER BY chunk",
            (epoch, sender),
        ).fetchall()
        for (chunk,) in numbers:
            yield self._chunk(epoch, sender, chunk)

    def _chunk(self, epoch: bytes, sender: str, chunk: int) -> Examples:
        try:
            digest, content = self._db.execute(
                "SELECT digest, content FROM received WHERE epoch = ? AND sender = ? AND chunk = ?",
                (epoch, sender, chunk),
            ).fetchone()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"store {self.folder} is damaged: {error}") from None
        if hashlib.sha256(content).digest() != digest:
            raise StoreError(f"store {self.folder} is damaged: chunk {chunk} of {sender[:8]}")
        return packing.unpack(content)

    # Commits

    def commit_record(self) -> tuple[bytes, bytes]:
        """The digest and the record of the commit that the site is under; empty if none."""
        row = self._db.execute("SELECT digest, record FROM commits").fetchone()
        return (b"", b"") if row is None else (bytes(row[0]), bytes(row[1]))

    def apply(self, commit: Commit, me: int | None) -> None:
        """Come under a commit: delete what it does not give this site, and the epoch's keys."""
        epoch = bytes.fromhex(commit.epoch)
        keep = {
            commit.members[sender].identity: sender
            for sender, recipient in commit.pairs
            if recipient == me
        }
        with self._writing("store.commit"):
            known = self._db.execute("SELECT epoch, sender, chunk, n FROM received").fetchall()
            deleted: dict[str, int] = {}
            for of_epoch, sender, chunk, n in known:
                if bytes(of_epoch) != epoch or sender not in keep:
                    self._db.execute(
                        "DELETE FROM received WHERE epoch = ? AND sender = ? AND chunk = ?",
                        (of_epoch, sender, chunk),
                    )
                    deleted[sender] = deleted.get(sender, 0) + n
                elif gone := commit.withdrawn[keep[sender]]:
                    n_gone = self._delete_examples(epoch, sender, chunk, np.array(gone))
                    deleted[sender] = deleted.get(sender, 0) + n_gone
            self._db.execute("DELETE FROM epoch_keys")
            highest = self.highest_epoch()[0]
            if commit.number > highest:
                self._db.execute("INSERT INTO epochs VALUES (?, ?)", (commit.number, epoch))
            self._db.execute(
                "INSERT OR REPLACE INTO commits VALUES (1, ?, ?)", (commit.digest, commit.encode())
            )
            for sender, n in deleted.items():
                if n:
                    self._note("deleted", commit.number, sender, commit.serial, n, 0)
            self._note(
                "commit", commit.number, "", commit.serial, commit.n_examples, 0, commit.digest
            )

    def _delete_examples(self, epoch: bytes, sender: str, chunk: int, gone: IntArray) -> int:
        examples = self._chunk(epoch, sender, chunk)
        stays = ~np.isin(examples.numbers, gone)
        if stays.all():
            return 0
        packed = examples.select(stays).pack()
        self._db.execute(
            "UPDATE received SET n = ?, digest = ?, content = ? "
            "WHERE epoch = ? AND sender = ? AND chunk = ?",
            (int(stays.sum()), hashlib.sha256(packed).digest(), packed, epoch, sender, chunk),
        )
        return int((~stays).sum())

    def note_receipts(self, epoch: int, receipts: list[tuple[str, int, bytes]]) -> None:
        """Into the ledger: (recipient, examples, signature) of what arrived."""
        with self._writing("store.receipts"):
            for peer, examples, signature in receipts:
                self._note("receipt", epoch, peer, 0, examples, 0, signature)

    # Withdrawal

    def withdraw(self, rows: IntArray) -> int:
        """Take rows back for good; returns how many were not withdrawn before."""
        manifest = self.manifest()
        if manifest is None:
            raise StoreError(f"store {self.folder} has offered nothing yet: nothing to withdraw")
        if len(rows) and (rows.min() < 0 or rows.max() >= len(manifest.live)):
            wrong = rows.min() if rows.min() < 0 else rows.max()
            raise StoreError(f"rows must be in 0 to {len(manifest.live) - 1}, got {wrong}")
        with self._writing("store.withdrawn"):
            (before,) = self._db.execute("SELECT COUNT(*) FROM withdrawals").fetchone()
            self._db.executemany(
                "INSERT OR IGNORE INTO withdrawals VALUES (?, ?)",
                [(manifest.fingerprints[row].tobytes(), int(row)) for row in rows],
            )
            (after,) = self._db.execute("SELECT COUNT(*) FROM withdrawals").fetchone()
            if after > before:
                self._note("withdrawn", self.highest_epoch()[0], "", after, after - before, 0)
        return int(after - before)

    def withdraw_all(self) -> None:
        """Take everything back: the site leaves the federation."""
        with self._writing("store.withdrew_all"):
            self._set("withdrew all", b"1")
            self._note("withdrawn", self.highest_epoch()[0], "everything", 0, 0, 0)

    @property
    def withdrew_all(self) -> bool:
        return self._get("withdrew all") is not None

    def withdrawn_fingerprints(self) -> set[bytes]:
        return {bytes(f) for (f,) in self._db.execute("SELECT fingerprint FROM withdrawals")}

    # The ledger

    def _note(
        self,
        event: str,
        epoch: int,
        peer: str,
        chunk: int,
        examples: int,
        size: int,
        evidence: bytes = b"",
    ) -> None:
        """Append an entry, chained to the one before; the same thing is noted once."""
        if self._db.execute(
            "SELECT 1 FROM ledger WHERE event = ? AND epoch = ? AND peer = ? AND chunk = ? "
            "AND evidence = ?",
            (event, epoch, peer, chunk, evidence),
        ).fetchone():
            return
        last = self._db.execute(
            "SELECT entry, chain FROM ledger ORDER BY entry DESC LIMIT 1"
        ).fetchone()
        number, before = (1, b"") if last is None else (last[0] + 1, bytes(last[1]))
        fields = (number, time.time(), event, epoch, peer, chunk, examples, size, evidence)
        self._db.execute(
            "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*fields, _chained(before, fields)),
        )

    def ledger(self) -> Iterator[LedgerEntry]:
        """All entries, the oldest first; one that was changed since is noticed."""
        before = b""
        for row in self._db.execute("SELECT * FROM ledger ORDER BY entry"):
            if _chained(before, row[:-1]) != row[-1]:
                raise StoreError(f"the ledger of {self.folder} was changed at entry {row[0]}")
            before = row[-1]
            yield LedgerEntry(*row)

    def check(self) -> None:
        """Read everything; raise if anything is damaged."""
        try:
            (verdict,) = self._db.execute("PRAGMA integrity_check").fetchone()
        except sqlite3.DatabaseError as error:
            verdict = str(error)
        if verdict != "ok":
            raise StoreError(f"store {self.folder} is damaged: {verdict}")
        for epoch, sender, chunk in self._db.execute("SELECT epoch, sender, chunk FROM received"):
            self._chunk(bytes(epoch), sender, chunk)
        for _ in self.ledger():
            pass

    def holdings(self) -> list[tuple[str, int]]:
        """How many examples of each sender are here: (identity, examples)."""
        return self._db.execute(
            "SELECT sender, SUM(n) FROM received GROUP BY sender ORDER BY sender"
        ).fetchall()


def _chained(before: bytes, fields: tuple[object, ...]) -> bytes:
    return hashlib.sha256(before + repr(fields).encode()).digest()


def _statements(script: str) -> list[str]:
    """The statements of the schema; a trigger holds semicolons of its own."""
    found, part = [], ""
    for piece in script.split(";"):
        part += piece + ";"
        if sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return found
