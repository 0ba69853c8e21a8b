"""A ledger can only grow, and shows when it was changed."""

import sqlite3

import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.site.database import FILE
from tests.federate.site.stores import (
    SENDERS,
    fill,
)


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
