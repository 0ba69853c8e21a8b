"""A store's ledger: what happened to examples, entry after entry, chained."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedcommons.errors import StoreError
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.store_format import row_digest


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One thing that happened to examples.

    The event is one of: sent, received, receipt (signed by the peer), receipt given, commit,
    withdrawn, deleted, approved (an exchange, by the operator), approved change (of a commit,
    likewise), recovery (to a commit, likewise), restored (the store, from a backup).
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


@dataclass(frozen=True, slots=True)
class Deletion:
    """What was deleted of a chunk that was received.

    Attributes:
        epoch, sender, chunk: which one; `epoch` is its digest.
        n: how many examples of it were deleted.
        numbers: their share numbers, eight bytes each; empty for all that was left of the chunk.
    """

    epoch: bytes
    sender: str
    chunk: int
    n: int
    numbers: bytes = b""


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
    ) -> int:
        """Append an entry, chained to the one before; the same thing is noted only once.

        Returns its number. Call it inside the transaction that makes the change.
        """
        database = self._database
        known = database.run(
            "SELECT entry FROM ledger WHERE event = ? AND epoch = ? AND peer = ? AND chunk = ? "
            "AND evidence = ?",
            (event, epoch, peer, chunk, evidence),
        )
        if known:
            return int(known[0][0])
        ((last,),) = database.run("SELECT COALESCE(MAX(entry), 0) FROM ledger")
        fields = (last + 1, time.time(), event, epoch, peer, chunk, examples, size, evidence)
        chain = row_digest(database.get("ledger"), *fields)
        database.run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*fields, chain))
        database.set("ledger", chain)
        return int(last) + 1

    def note_deleted(
        self, deleted: Sequence[Deletion], epoch: int, serial: int, evidence: bytes = b""
    ) -> None:
        """How many examples of each sender were deleted, and which."""
        for sender in dict.fromkeys(deletion.sender for deletion in deleted):
            parts = [deletion for deletion in deleted if deletion.sender == sender]
            if n := sum(part.n for part in parts):
                entry = self.note("deleted", epoch, sender, serial, n, 0, evidence)
                for part in parts:
                    self._note_deletion(entry, part)

    def _note_deletion(self, entry: int, part: Deletion) -> None:
        if part.n:
            ((last,),) = self._database.run("SELECT COALESCE(MAX(id), 0) FROM deleted")
            fields = (part.epoch, part.sender, part.chunk, part.n, part.numbers)
            self._database.put("deleted", last + 1, entry, *fields)

    def deletions(self) -> list[tuple[int, Deletion]]:
        """What was deleted, with the entry that it was noted by, the oldest first."""
        return [(row[1], Deletion(*row[2:])) for row in sorted(self._database.rows("deleted"))]

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
