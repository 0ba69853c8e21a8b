"""The format of a store on disk: its tables and its version.

To change the format: change `SCHEMA`, raise `VERSION` by one, and add an entry to
`store_upgrades.UPGRADES`.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any

APPLICATION = 0x46434F4D  # "FCOM": how SQLite knows a store of fedcommons from other databases
VERSION = 6

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
    id INTEGER PRIMARY KEY, public BLOB NOT NULL, private BLOB NOT NULL, value BLOB NOT NULL,
    proposal BLOB NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE epochs (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL, record BLOB NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE given (
    epoch INTEGER PRIMARY KEY, sites TEXT NOT NULL, places BLOB NOT NULL,
    fingerprints BLOB NOT NULL, rows BLOB NOT NULL, per_chunk INTEGER NOT NULL,
    grounds TEXT NOT NULL, ground BLOB NOT NULL, seal BLOB NOT NULL
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
CREATE TABLE answered (
    id INTEGER PRIMARY KEY CHECK (id = 1), record BLOB NOT NULL, groups BLOB NOT NULL,
    seal BLOB NOT NULL
);
CREATE TABLE withdrawals (
    fingerprint BLOB PRIMARY KEY, row INTEGER NOT NULL, total INTEGER NOT NULL, seal BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE deleted (
    id INTEGER PRIMARY KEY, entry INTEGER NOT NULL, epoch BLOB NOT NULL, sender TEXT NOT NULL,
    chunk INTEGER NOT NULL, n INTEGER NOT NULL, numbers BLOB NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE kept (
    part INTEGER PRIMARY KEY, training TEXT NOT NULL, question INTEGER NOT NULL,
    about TEXT NOT NULL, content BLOB NOT NULL, seal BLOB NOT NULL
);
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
SEALED = (
    *("about", "peers", "manifest", "epoch_keys", "epochs", "given", "commits", "withdrawals"),
    *("deleted", "answered"),
)
SMALL = (*SEALED, "ledger")  # all but what was received, and an answer, which may be large


def schema_statements() -> list[str]:
    """The statements of the schema, one by one; a trigger contains semicolons of its own."""
    found, part = [], ""
    for piece in SCHEMA.split(";"):
        part += piece + ";"
        if sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return found


def row_digest(*fields: Any) -> bytes:
    """One digest of several values; other values, or the same ones divided otherwise, differ.

    Rows of the tables in `SEALED` end with that of the table's name and their fields.
    """
    whole = hashlib.sha256()
    for value in fields:
        content = value if isinstance(value, bytes) else repr(value).encode()
        whole.update(f"{type(value).__name__} {len(content)} ".encode())
        whole.update(content)
    return whole.digest()
