"""A site's database: durable transactions, rows with a digest, deletion that overwrites."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedcommons import shown
from fedcommons.errors import StoreError
from fedcommons.federate.protocol import durable, keys
from fedcommons.federate.site import store_format, store_upgrades
from fedcommons.federate.site.store_format import row_digest

logger = shown.logger(__name__)

FILE = "store.sqlite3"
BUSY_SECONDS = 30  # how long another process may be writing
WIPE_MILLISECONDS = 200
SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",
    "cell_size_check = ON",
)


class Database:
    """The opened database of a store. A new one is made only with `create`."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        self.path = folder / FILE
        if not self.path.exists():
            if not create:
                raise StoreError(f"{folder} is not a site's store: {FILE} is missing")
            self._make_file()
        try:
            self._db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"store {folder} cannot be opened: {error}") from None
        self._known: dict[str, tuple[tuple[int, int] | None, list[tuple[Any, ...]]]] = {}
        self.close = weakref.finalize(self, self._db.close)
        try:
            self._prepare(create)
        except BaseException:
            self.close()
            raise

    def _make_file(self) -> None:
        """An empty file that only its owner may read; so is its folder if nothing else is in it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not any(self.folder.iterdir()):
                self.folder.chmod(0o700)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise StoreError(f"store {self.folder} cannot be made: {error}") from None

    def _prepare(self, create: bool) -> None:
        if self.run("PRAGMA application_id") == [(0,)]:
            self._create(create)
        if self.run("PRAGMA application_id") != [(store_format.APPLICATION,)]:
            raise StoreError(f"{self.path} was not made by fedcommons")
        store_upgrades.check_version(self.folder, self.version)
        for setting in SETTINGS:
            self.run(f"PRAGMA {setting}")

    def _create(self, create: bool) -> None:
        """The tables and an identity, all or nothing; another process may be doing the same."""
        with self.writing("store.created"):
            if self.run("PRAGMA application_id") != [(0,)]:
                return
            if not create or self.run("SELECT name FROM sqlite_master"):
                raise StoreError(f"{self.path} was not made by fedcommons")
            for statement in store_format.schema_statements():
                self.run(statement)
            self.set("identity", keys.Identity.create().private)
            self.run(f"PRAGMA application_id = {store_format.APPLICATION}")
            self.run(f"PRAGMA user_version = {store_format.VERSION}")

    @property
    def version(self) -> int:
        """The version of the store's format."""
        ((version,),) = self.run("PRAGMA user_version")
        return int(version)

    # Reading and writing

    def run(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows that a statement returns; errors of SQLite become `StoreError`."""
        try:
            return self._db.execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeError) as error:  # UnicodeError: names in a damaged schema
            raise StoreError(f"store {self.folder} cannot be used: {error}") from None

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """One transaction, on the disk when it ends; `name` is its crash point."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            with durable.point(name):
                self.run("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self.run("ROLLBACK")
            raise

    def wipe(self) -> None:
        """Empty the write-ahead log, which still contains what was deleted.

        Another reader (a backup, say) may prevent that. It is not waited for, because a deployed
        site opens its store for every message; every opening tries again.
        """
        self.run(f"PRAGMA busy_timeout = {WIPE_MILLISECONDS}")
        ((busy, _, _),) = self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        self.run(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS}")
        if busy:
            logger.warning(
                "store %s: deleted data are not overwritten yet, because another process is "
                "using the store; this is done when the store is next opened",
                self.folder,
            )

    def copy_to(self, path: Path) -> None:
        """Copy what is committed, as it is at one moment, to a file that only this user reads."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            with (
                contextlib.closing(sqlite3.connect(self.path)) as source,
                contextlib.closing(sqlite3.connect(path)) as copy,
            ):
                source.backup(copy)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"store {self.folder} cannot be copied: {error}") from None

    def put(self, table: str, *fields: Any) -> None:
        """Insert or replace a row, sealed."""
        marks = "?, " * len(fields)
        self.run(
            f"INSERT OR REPLACE INTO {table} VALUES ({marks}?)",  # noqa: S608 (our own name)
            (*fields, row_digest(table, *fields)),
        )

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """All rows of a table, without their seals; raise if one was changed from outside.

        They are read again only if this connection or another one has written since.
        """
        now = (self.run("PRAGMA data_version")[0][0], self._db.total_changes)
        known, rows = self._known.get(table, (None, []))
        if known != now:
            found = self.run(f"SELECT * FROM {table}")  # noqa: S608 (our own name)
            rows = [self.unsealed(table, row) for row in found]
            self._known[table] = (now, rows)
        return rows

    def unsealed(self, table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row without its seal; raise if the seal is not that of the row."""
        if row_digest(table, *row[:-1]) != row[-1]:
            raise StoreError(f"store {self.folder} is damaged: a row of {table}")
        return row[:-1]

    def get(self, name: str) -> bytes | None:
        """A value of the table `about`."""
        return dict(self.rows("about")).get(name)

    def set(self, name: str, value: bytes) -> None:
        self.put("about", name, value)

    def check_structure(self, pragma: str) -> None:
        verdict = self.run(f"PRAGMA {pragma}")
        if verdict != [("ok",)]:
            raise StoreError(f"store {self.folder} is damaged: {verdict[0][0]}")
