"""The format of a store on disk: its tables, its version, and upgrades from earlier ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedcommons.errors import StoreError

APPLICATION = 0x46434F4D  # "FCOM": how SQLite knows a store of fedcommons from other databases
VERSION = 3

Run = Callable[..., list[tuple[Any, ...]]]
"""Runs one SQL statement with its values and returns all rows."""


def _with_any_labels(_run: Run) -> None:
    """2 -> 3: what is received may have labels of any kind; what is here stays as it is."""


UPGRADES: dict[int, Callable[[Run], object]] = {2: _with_any_labels}
"""For each earlier version n, what turns a store of version n into one of version n + 1.

To change the format: change `SCHEMA`, raise `VERSION` by one, and add an entry here under the
version before. An upgrade runs inside one transaction. Rows of the tables in `SEALED` end with
`row_digest(table, *fields)`, which an upgrade must compute anew for every row that it changes.
"""

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
SEALED = ("about", "peers", "manifest", "epoch_keys", "epochs", "commits", "withdrawals")
SMALL = (*SEALED, "ledger")  # all but what was received, which may be large


def check_version(folder: Path, version: int) -> None:
    """Refuse a store that this fedcommons can neither use nor upgrade."""
    if version > VERSION:
        raise StoreError(
            f"store {folder} has format version {version}, but this fedcommons only knows versions "
            f"up to {VERSION}: a later fedcommons wrote it, so install that one or a newer one"
        )
    if any(n not in UPGRADES for n in range(version, VERSION)):
        raise StoreError(
            f"store {folder} has format version {version}, which this fedcommons cannot upgrade to "
            f"version {VERSION}: open it once with an earlier fedcommons that can, or begin with a "
            "new store"
        )


def schema_statements() -> list[str]:
    """The statements of the schema, one by one; a trigger contains semicolons of its own."""
    found, part = [], ""
    for piece in SCHEMA.split(";"):
        part += piece + ";"
        if sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return found
