"""Damage to a store is noticed."""

import numpy as np
import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.site.database import FILE
from fedcommons.federate.site.store import Store
from tests.federate.site.stores import (
    everything,
    fill,
)


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
