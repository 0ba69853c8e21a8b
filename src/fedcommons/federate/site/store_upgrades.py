"""What turns a store of an earlier format into one of the next, by the version that it has.

An upgrade runs inside one transaction, of which `store_upgrade` takes care. Rows of the tables in
`store_format.SEALED` end with `row_digest(table, *fields)`, which an upgrade computes anew for
every row that it changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons.errors import StoreError
from fedcommons.federate.protocol.draw import Draw
from fedcommons.federate.site.store_format import VERSION, row_digest

NOTHING = (b"", b"", b"", 1, '[""]', b"")  # places, fingerprints, rows, and about them

Run = Callable[..., list[tuple[Any, ...]]]
"""Runs one SQL statement with its values and returns all rows."""


def _with_any_labels(_run: Run) -> None:
    """2 -> 3: what is received may have labels of any kind; what is here stays as it is."""


def _with_what_was_given(run: Run) -> None:
    """3 -> 4: to whom examples were given is kept, and exchanges are drawn by all sites.

    Which rows were given, on what ground, withdrawn and deleted is kept from now on, too. An
    exchange that was begun in the old way cannot be gone on with: its keys are destroyed.
    """
    run(
        "CREATE TABLE given (epoch INTEGER PRIMARY KEY, sites TEXT NOT NULL, "
        "places BLOB NOT NULL, fingerprints BLOB NOT NULL, rows BLOB NOT NULL, "
        "per_chunk INTEGER NOT NULL, grounds TEXT NOT NULL, ground BLOB NOT NULL, "
        "seal BLOB NOT NULL)"
    )
    manifests: dict[bytes, tuple[bytes, ...]] = {
        row[0]: row[1:] for row in run("SELECT digest, live, shareable, fingerprints FROM manifest")
    }
    for number, digest, record in run("SELECT number, digest, record FROM epochs"):
        if record:
            fields = (number, *_given(record, manifests))
            _put(run, "given", *fields)
        kept = (number, digest, b"")  # as of an epoch that is known from its commit alone
        run("UPDATE epochs SET record = ?, seal = ? WHERE number = ?",
            (b"", row_digest("epochs", *kept), number))  # fmt: skip
    run("DROP TABLE epoch_keys")
    run(
        "CREATE TABLE epoch_keys (id INTEGER PRIMARY KEY, public BLOB NOT NULL, "
        "private BLOB NOT NULL, value BLOB NOT NULL, proposal BLOB NOT NULL, seal BLOB NOT NULL)"
    )
    totals = run("SELECT chunk FROM ledger WHERE event = 'withdrawn' AND peer = ''")
    total = totals[0][0] if len(totals) == 1 else 0  # which of several it was is not known
    withdrawn = run("SELECT fingerprint, row FROM withdrawals")
    run("DROP TABLE withdrawals")
    run(
        "CREATE TABLE withdrawals (fingerprint BLOB PRIMARY KEY, row INTEGER NOT NULL, "
        "total INTEGER NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID"
    )
    for fingerprint, row in withdrawn:
        _put(run, "withdrawals", fingerprint, row, total)
    run(
        "CREATE TABLE deleted (id INTEGER PRIMARY KEY, entry INTEGER NOT NULL, "
        "epoch BLOB NOT NULL, sender TEXT NOT NULL, chunk INTEGER NOT NULL, n INTEGER NOT NULL, "
        "numbers BLOB NOT NULL, seal BLOB NOT NULL)"
    )


def _with_kept_answers(run: Run) -> None:
    """4 -> 5: an answer that took long is kept until the server has it; none was before."""
    run(
        "CREATE TABLE kept (part INTEGER PRIMARY KEY, training TEXT NOT NULL, "
        "question INTEGER NOT NULL, about TEXT NOT NULL, content BLOB NOT NULL, "
        "seal BLOB NOT NULL)"
    )


def _with_changes(run: Run) -> None:
    """5 -> 6: commits may have signatures; under which ones the site answered is kept, too."""
    run(
        "CREATE TABLE answered (id INTEGER PRIMARY KEY CHECK (id = 1), record BLOB NOT NULL, "
        "groups BLOB NOT NULL, seal BLOB NOT NULL)"
    )


def _put(run: Run, table: str, *fields: Any) -> None:
    """Insert a row, sealed."""
    marks = "?, " * len(fields)
    run(
        f"INSERT INTO {table} VALUES ({marks}?)",  # noqa: S608 (our own names)
        (*fields, row_digest(table, *fields)),
    )


def _given(record: bytes, manifests: dict[bytes, tuple[bytes, ...]]) -> tuple[Any, ...]:
    """Who was to be sent which examples in an epoch, as far as its numbering is still known."""
    try:
        epoch = json.loads(record)
        offers = [json.loads(content) for content, _ in epoch["offers"]]
    except (ValueError, TypeError, LookupError):
        return "[]", *NOTHING
    names = json.dumps([offer["identity"] for offer in offers])
    for me, offer in enumerate(offers):
        if found := manifests.get(bytes.fromhex(offer["manifest"])):
            live, shareable, prints = found
            shared = np.frombuffer(live, np.bool_) & np.frombuffer(shareable, np.bool_)
            sites = tuple(str(one["site"]) for one in offers)
            n_shareable = tuple(int(one["n_shareable"]) for one in offers)
            draw = Draw(int(epoch["seed"]), int(epoch["copies"]), sites, n_shareable)
            places = draw.recipients(me, 0, int(shared.sum()))
            rows = np.flatnonzero(shared).astype("<i8")
            shared_prints = np.frombuffer(prints, np.uint8).reshape(-1, 16)[shared]
            without = np.zeros(len(rows), "<i4").tobytes()
            per_chunk = max(1, (16 << 20) // (max(draw.copies, 1) * int(offer["row_bytes"])))
            about = (rows.tobytes(), per_chunk, '[""]', without)
            return names, places.astype(np.int32).tobytes(), shared_prints.tobytes(), *about
    return names, *NOTHING


UPGRADES: dict[int, Callable[[Run], object]] = {
    2: _with_any_labels,
    3: _with_what_was_given,
    4: _with_kept_answers,
    5: _with_changes,
}
"""For each earlier version n, what turns a store of version n into one of version n + 1."""


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
