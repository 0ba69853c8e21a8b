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

Run = Callable[..., list[tuple[Any, ...]]]
"""Runs one SQL statement with its values and returns all rows."""


def _with_any_labels(_run: Run) -> None:
    """2 -> 3: what is received may have labels of any kind; what is here stays as it is."""


def _with_what_was_given(run: Run) -> None:
    """3 -> 4: to whom examples were given is kept, and exchanges are drawn by all sites.

    An exchange that was begun in the old way cannot be gone on with: its keys are destroyed.
    """
    run(
        "CREATE TABLE given (epoch INTEGER PRIMARY KEY, sites TEXT NOT NULL, "
        "places BLOB NOT NULL, fingerprints BLOB NOT NULL, seal BLOB NOT NULL)"
    )
    manifests = {
        row[0]: row[1:] for row in run("SELECT digest, live, shareable, fingerprints FROM manifest")
    }
    for number, digest, record in run("SELECT number, digest, record FROM epochs"):
        if record:
            fields = (number, *_given(record, manifests))
            run("INSERT INTO given VALUES (?, ?, ?, ?, ?)", (*fields, row_digest("given", *fields)))
        kept = (number, digest, b"")  # as of an epoch that is known from its commit alone
        run("UPDATE epochs SET record = ?, seal = ? WHERE number = ?",
            (b"", row_digest("epochs", *kept), number))  # fmt: skip
    run("DROP TABLE epoch_keys")
    run(
        "CREATE TABLE epoch_keys (id INTEGER PRIMARY KEY, public BLOB NOT NULL, "
        "private BLOB NOT NULL, value BLOB NOT NULL, proposal BLOB NOT NULL, seal BLOB NOT NULL)"
    )


def _given(record: bytes, manifests: dict[bytes, tuple[bytes, ...]]) -> tuple[str, bytes, bytes]:
    """Who was to be sent which examples in an epoch, as far as its numbering is still known."""
    try:
        epoch = json.loads(record)
        offers = [json.loads(content) for content, _ in epoch["offers"]]
    except (ValueError, TypeError, LookupError):
        return "[]", b"", b""
    names = json.dumps([offer["identity"] for offer in offers])
    for me, offer in enumerate(offers):
        if found := manifests.get(bytes.fromhex(offer["manifest"])):
            live, shareable, prints = found
            shared = np.frombuffer(live, np.bool_) & np.frombuffer(shareable, np.bool_)
            sites = tuple(str(one["site"]) for one in offers)
            n_shareable = tuple(int(one["n_shareable"]) for one in offers)
            draw = Draw(int(epoch["seed"]), int(epoch["copies"]), sites, n_shareable)
            places = draw.recipients(me, 0, int(shared.sum()))
            rows = np.frombuffer(prints, np.uint8).reshape(-1, 16)[shared]
            return names, places.astype(np.int32).tobytes(), rows.tobytes()
    return names, b"", b""


UPGRADES: dict[int, Callable[[Run], object]] = {2: _with_any_labels, 3: _with_what_was_given}
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
