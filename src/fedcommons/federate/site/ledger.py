"""A store's ledger: what happened to examples, entry after entry, chained."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedcommons.errors import StoreError
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.store_format import row_digest


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One thing that happened to examples.

    The event is one of: sent, received, receipt (signed by the peer), receipt given, commit,
    withdrawn, deleted, approved (an exchange, by the operator), recovery (to a commit, likewise).
    """

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


class Ledger:
    """The part of a store that is only ever added to; every other part notes its changes here."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(
        self,
        event: str,
        epoch: int,
        peer: str,
        chunk: int,
        examples: int,
        size: int,
        evidence: bytes = b"",
    ) -> None:
        """Append an entry, chained to the one before; the same thing is noted only once.

        Call it inside the transaction that makes the change.
        """
        database = self._database
        if database.run(
            "SELECT 1 FROM ledger WHERE event = ? AND epoch = ? AND peer = ? AND chunk = ? "
            "AND evidence = ?",
            (event, epoch, peer, chunk, evidence),
        ):
            return
        ((last,),) = database.run("SELECT COALESCE(MAX(entry), 0) FROM ledger")
        fields = (last + 1, time.time(), event, epoch, peer, chunk, examples, size, evidence)
        chain = row_digest(database.get("ledger"), *fields)
        database.run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*fields, chain))
        database.set("ledger", chain)

    def note_deleted(
        self, deleted: Mapping[str, int], epoch: int, serial: int, evidence: bytes = b""
    ) -> None:
        """How many examples of each sender were deleted."""
        for sender, n in deleted.items():
            if n:
                self.note("deleted", epoch, sender, serial, n, 0, evidence)

    def note_sent(self, epoch: int, sent: Sequence[tuple[str, int, int, int]]) -> None:
        """The envelopes that were sealed: (peer, chunk, examples, bytes) of each."""
        with self._database.writing("store.sent"):
            for peer, chunk, examples, size in sent:
                self.note("sent", epoch, peer, chunk, examples, size)

    def note_receipts(
        self, epoch: int, receipts: Sequence[tuple[str, int, bytes]], event: str = "receipt"
    ) -> None:
        """Receipts, from peers or given to them: (peer, examples, signature) of each."""
        with self._database.writing("store.receipts"):
            for peer, examples, signature in receipts:
                self.note(event, epoch, peer, 0, examples, 0, signature)

    def entries(self) -> Iterator[LedgerEntry]:
        """All entries, the oldest first; raise if one was changed or is missing."""
        before = None
        for row in self._database.run("SELECT * FROM ledger ORDER BY entry"):
            if row_digest(before, *row[:-1]) != row[-1]:
                raise StoreError(
                    f"the ledger of {self._database.folder} was changed at entry {row[0]}"
                )
            before = row[-1]
            yield LedgerEntry(*row)
        if before != self._database.get("ledger"):
            raise StoreError(f"the ledger of {self._database.folder} has lost its last entries")
