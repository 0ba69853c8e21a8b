"""A site's database: transactions that last, rows that carry a digest, deletion that overwrites."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedcommons.errors import StoreError
from fedcommons.federate.protocol import durable, keys

logger = logging.getLogger(__name__)

FILE = "store.sqlite3"
VERSION = 2
APPLICATION = 0x46434F4D  # "FCOM"
BUSY_SECONDS = 30  # that another process may write for
WIPE_MILLISECONDS = 200

SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value BLOB NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE peers (
    site TEXT PRIMARY KEY, identity TEXT NOT NULL, seal BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE manifest (
    id INTEGER PRIMARY KEY, stamp TEXT NOT NULL, content BLOB NOT NULL,
    digest BLOB NOT NULL, live BLOB NOT NULL, shareable BLOB NOT NULL, fingerprints BLOB NOT NULL,
    seal BLOB NOT NULL
);
CREATE TABLE epoch_keys (
    id INTEGER PRIMARY KEY, public BLOB NOT NULL, private BLOB NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE epochs (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL, record BLOB NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE received (
    epoch BLOB NOT NULL, sender TEXT NOT NULL, chunk INTEGER NOT NULL, n INTEGER NOT NULL,
    digest BLOB NOT NULL, original BLOB NOT NULL, seal BLOB NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (epoch, sender, chunk)
);
CREATE TABLE commits (
    id INTEGER PRIMARY KEY CHECK (id = 1), digest BLOB NOT NULL, record BLOB NOT NULL,
    seal BLOB NOT NULL
);
CREATE TABLE withdrawals (
    fingerprint BLOB PRIMARY KEY, row INTEGER NOT NULL, seal BLOB NOT NULL
) WITHOUT ROWID;
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
CREATE TRIGGER no_replace BEFORE INSERT ON ledger
    WHEN NEW.entry <= (SELECT MAX(entry) FROM ledger)
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""
STATE = ("about", "peers", "manifest", "epoch_keys", "epochs", "commits", "withdrawals", "ledger")


class Database:
    """The database of a store, opened; made if it is new and `create` says so."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        path = folder / FILE
        if not path.exists():
            if not create:
                raise StoreError(f"{folder} is not a site's store: {FILE} is missing")
            self._make_file(path)
        try:
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"store {folder} cannot be opened: {error}") from None
        self._known: dict[str, tuple[tuple[int, int] | None, list[tuple[Any, ...]]]] = {}
        self.close = weakref.finalize(self, self._db.close)
        try:
            self._prepare(create)
        except BaseException:
            self.close()
            raise

    def _make_file(self, path: Path) -> None:
        """An empty file that nobody else may read, in a folder of its own nobody else may enter."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not any(self.folder.iterdir()):  # one with other things in it stays as it is
                self.folder.chmod(0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise StoreError(f"store {self.folder} cannot be made: {error}") from None

    def _prepare(self, create: bool) -> None:
        if self._run("PRAGMA application_id") == [(0,)]:
            self._create(create)
        if self._run("PRAGMA application_id") != [(APPLICATION,)]:
            raise StoreError(f"{self.folder / FILE} was not made by fedcommons")
        ((version,),) = self._run("PRAGMA user_version")
        if version != VERSION:
            raise StoreError(f"store {self.folder} must have version {VERSION}, got {version}")
        for setting in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "secure_delete = ON",
            "temp_store = MEMORY",
            "cell_size_check = ON",
        ):
            self._run(f"PRAGMA {setting}")
        for table in STATE:
            self._check_structure(f"quick_check({table})")
        self._wipe()  # a process that was killed may have left something

    def _create(self, create: bool) -> None:
        """The tables and an identity, all or nothing; another process may do it at this moment."""
        with self._writing("store.created"):
            if self._run("PRAGMA application_id") != [(0,)]:
                return
            if not create or self._run("SELECT name FROM sqlite_master"):
                raise StoreError(f"{self.folder / FILE} was not made by fedcommons")
            for statement in _statements(SCHEMA):
                self._run(statement)
            self._set("identity", keys.Identity.create().private)
            self._run(f"PRAGMA application_id = {APPLICATION}")
            self._run(f"PRAGMA user_version = {VERSION}")

    # Reading and writing

    def _run(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All that a statement returns; what SQLite raises becomes a `StoreError`."""
        try:
            return self._db.execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeError) as error:  # names in a damaged schema
            raise StoreError(f"store {self.folder} cannot be used: {error}") from None

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """One transaction, on the disk when it ends."""
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            with durable.point(name):
                self._run("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._run("ROLLBACK")
            raise

    def _wipe(self) -> None:
        """Empty the write-ahead log: what was deleted is in there too.

        A reader from elsewhere (a backup, say) may hold on to it; every opening tries again. It is
        not waited for: a deployed site opens its store for every message.
        """
        self._run(f"PRAGMA busy_timeout = {WIPE_MILLISECONDS}")
        ((busy, _, _),) = self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        self._run(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS}")
        if busy:
            logger.warning(
                "store %s: what was deleted is not overwritten yet, since another process uses "
                "the store: it will be when the store is next opened",
                self.folder,
            )

    def _put(self, table: str, *fields: Any) -> None:
        """Insert or replace a row, sealed."""
        marks = "?, " * len(fields)
        self._run(
            f"INSERT OR REPLACE INTO {table} VALUES ({marks}?)",  # noqa: S608 (our own name)
            (*fields, row_digest(table, *fields)),
        )

    def _all(self, table: str) -> list[tuple[Any, ...]]:
        """All rows of a table; one that was changed from elsewhere is noticed.

        Read again only if this connection or another one has written since.
        """
        now = (self._run("PRAGMA data_version")[0][0], self._db.total_changes)
        known, rows = self._known.get(table, (None, []))
        if known != now:
            found = self._run(f"SELECT * FROM {table}")  # noqa: S608 (our own name)
            rows = [self._unsealed(table, row) for row in found]
            self._known[table] = (now, rows)
        return rows

    def _unsealed(self, table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
        if row_digest(table, *row[:-1]) != row[-1]:
            raise StoreError(f"store {self.folder} is damaged: a row of {table}")
        return row[:-1]

    def _get(self, name: str) -> bytes | None:
        return dict(self._all("about")).get(name)

    def _set(self, name: str, value: bytes) -> None:
        self._put("about", name, value)

    def _check_structure(self, pragma: str) -> None:
        verdict = self._run(f"PRAGMA {pragma}")
        if verdict != [("ok",)]:
            raise StoreError(f"store {self.folder} is damaged: {verdict[0][0]}")


def row_digest(*fields: Any) -> bytes:
    """One digest of several values: no other values, or the same divided differently, have it."""
    whole = hashlib.sha256()
    for value in fields:
        content = value if isinstance(value, bytes) else repr(value).encode()
        whole.update(f"{type(value).__name__} {len(content)} ".encode())
        whole.update(content)
    return whole.digest()


def _statements(script: str) -> list[str]:
    """The statements of the schema; a trigger holds semicolons of its own."""
    found, part = [], ""
    for piece in script.split(";"):
        part += piece + ";"
        if sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return found
