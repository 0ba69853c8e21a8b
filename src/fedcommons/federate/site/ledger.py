"""A store's ledger: what happened to examples, one entry after another, chained."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedcommons.errors import StoreError
from fedcommons.federate.site.database import Database, row_digest


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One thing that happened to examples.

    Sent, received, receipt (signed by the peer), receipt given, commit, withdrawn, deleted.
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


class Ledger(Database):
    """The part of a store that is only ever added to; what changes the rest notes it here."""

    def _note(
        self,
        event: str,
        epoch: int,
        peer: str,
        chunk: int,
        examples: int,
        size: int,
        evidence: bytes = b"",
    ) -> None:
        """Append an entry, chained to the one before; the same thing is noted once."""
        if self._run(
            "SELECT 1 FROM ledger WHERE event = ? AND epoch = ? AND peer = ? AND chunk = ? "
            "AND evidence = ?",
            (event, epoch, peer, chunk, evidence),
        ):
            return
        ((last,),) = self._run("SELECT COALESCE(MAX(entry), 0) FROM ledger")
        fields = (last + 1, time.time(), event, epoch, peer, chunk, examples, size, evidence)
        chain = row_digest(self._get("ledger"), *fields)
        self._run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*fields, chain))
        self._set("ledger", chain)

    def _note_deleted(
        self, deleted: Mapping[str, int], epoch: int, serial: int, evidence: bytes = b""
    ) -> None:
        for sender, n in deleted.items():
            if n:
                self._note("deleted", epoch, sender, serial, n, 0, evidence)

    def ledger(self) -> Iterator[LedgerEntry]:
        """All entries, the oldest first; one that was changed since or is missing is noticed."""
        before = None
        for row in self._run("SELECT * FROM ledger ORDER BY entry"):
            if row_digest(before, *row[:-1]) != row[-1]:
                raise StoreError(f"the ledger of {self.folder} was changed at entry {row[0]}")
            before = row[-1]
            yield LedgerEntry(*row)
        if before != self._get("ledger"):
            raise StoreError(f"the ledger of {self.folder} has lost its last entries")
