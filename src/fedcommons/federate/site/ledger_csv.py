"""A site's ledger as CSV (RFC 4180, UTF-8), for an audit: a line an entry, or a line an example.

Which examples an entry is about is found in what the store keeps: what was given in each exchange,
the records of exchanges, whose draw says what came, withdrawals, and deletions. Entries from before
stores kept that, or of epochs that were forgotten, have one line with their count and no row.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
from collections.abc import Iterator
from functools import lru_cache
from typing import IO

import numpy as np

from fedcommons import shown
from fedcommons.checks import IntArray
from fedcommons.federate.protocol.chunks import share_numbers
from fedcommons.federate.protocol.records import LARGEST, Epoch
from fedcommons.federate.site.decoded import decoded_epoch
from fedcommons.federate.site.ledger import Deletion, LedgerEntry
from fedcommons.federate.site.status import names_of
from fedcommons.federate.site.store import Store

COLUMNS = (
    *("entry", "time", "event", "epoch", "peer", "peer_key", "examples"),
    *("row", "number", "ground", "receipt", "digest"),
)
RECEIPT_OF = {"sent": "receipt", "received": "receipt given"}  # the event that confirms another

Example = tuple[int | str, int | str, int | str, str]  # epoch, row, number, ground


def write_csv(store: Store, out: IO[bytes], *, rows: bool) -> None:
    """Write the ledger, its first line the names of the columns; with `rows` a line an example."""
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    try:
        writer, cell = csv.writer(text), lru_cache(1000)(shown.cell)
        writer.writerow(COLUMNS)
        for line in _Lines(store).all(rows=rows):
            writer.writerow([value if isinstance(value, int) else cell(value) for value in line])
    finally:
        text.detach()


class _Lines:
    """The lines of a store's ledger."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.names, self.given = names_of(store), store.given.exchanges()
        self.receipts = {
            (entry.event, entry.epoch, entry.peer): hashlib.sha256(entry.evidence).hexdigest()
            for entry in store.ledger.entries()
            if entry.event in RECEIPT_OF.values()
        }
        self.epochs = {
            number: (digest, record)
            for digest, (number, record) in store.epochs.between(0, LARGEST).items()
        }
        self.deletions = store.ledger.deletions()

    def all(self, *, rows: bool) -> Iterator[tuple[object, ...]]:
        for entry in self.store.ledger.entries():
            examples = list(self._examples(entry)) if rows else []
            if len(examples) != entry.examples:
                examples = []
            for example in examples:
                yield self._line(entry, 1, *example)
            if not examples:
                yield self._line(entry, entry.examples, entry.epoch, "", "", "")
        for fingerprint, row in self.store.withdrawals.rows(0) if rows else ():
            epoch, number, ground = self._last_given(fingerprint, row, LARGEST)
            yield ("", "", "withdrawn", epoch, "", "", 1, row, number, ground, "", "")

    def _line(
        self,
        entry: LedgerEntry,
        n: int,
        epoch: int | str,
        row: int | str,
        number: int | str,
        ground: str,
    ) -> tuple[object, ...]:
        when = datetime.datetime.fromtimestamp(entry.time, datetime.UTC)
        confirmed_by = RECEIPT_OF.get(entry.event, entry.event)
        return (
            entry.entry,
            when.isoformat(timespec="seconds"),
            entry.event,
            epoch,
            self.names.get(entry.peer, ""),
            entry.peer,
            n,
            row,
            number,
            ground,
            self.receipts.get((confirmed_by, entry.epoch, entry.peer), ""),
            entry.chain.hex(),
        )

    def _examples(self, entry: LedgerEntry) -> Iterator[Example]:
        """Which examples an entry is about, as far as the store knows."""
        if entry.event == "sent" and (given := self.given.get(entry.epoch)):
            for number in given.numbers(entry.peer, entry.chunk).tolist():
                yield entry.epoch, int(given.rows[number]), number, given.grounds[number]
        elif entry.event == "received":
            for number in self._assigned(entry.epoch, entry.peer, entry.chunk).tolist():
                yield entry.epoch, "", number, ""
        elif entry.event == "deleted":
            for place, (by, deletion) in enumerate(self.deletions):
                if by == entry.entry:
                    epoch, numbers = self._deleted(place, deletion)
                    for number in numbers.tolist():
                        yield epoch, "", number, ""
        elif entry.event == "withdrawn" and not entry.peer:
            for fingerprint, row in self.store.withdrawals.rows(entry.chunk):
                epoch, share, ground = self._last_given(fingerprint, row, entry.epoch)
                yield epoch or entry.epoch, row, share, ground

    def _assigned(self, epoch: int, sender: str, chunk: int) -> IntArray:
        """The share numbers of a sender's chunk that this site was to get in an epoch."""
        none = np.empty(0, np.int64)
        _, record = self.epochs.get(epoch, (b"", b""))
        if not record:
            return none
        found: Epoch = decoded_epoch(record)
        places = {site.identity: place for place, site in enumerate(found.sites)}
        own = [identity.name for identity in self.store.keyring.identities]
        me = next((places[name] for name in own if name in places), None)
        place = places.get(sender)
        if me is None or place is None:
            return none
        covered = share_numbers(found.sites[place], found.copies, chunk)
        return found.draw.assigned(place, me, covered.start, covered.stop)

    def _deleted(self, place: int, deletion: Deletion) -> tuple[int | str, IntArray]:
        """The epoch, and which share numbers of its sender were deleted."""
        epoch = next((n for n, (digest, _) in self.epochs.items() if digest == deletion.epoch), 0)
        if deletion.numbers:
            return epoch or "", np.frombuffer(deletion.numbers, "<i8").astype(np.int64)
        numbers = self._assigned(epoch, deletion.sender, deletion.chunk)
        chunk = (deletion.epoch, deletion.sender, deletion.chunk)
        for _, earlier in self.deletions[:place]:  # the rest of a chunk
            if (earlier.epoch, earlier.sender, earlier.chunk) == chunk:
                numbers = np.setdiff1d(numbers, np.frombuffer(earlier.numbers, "<i8"))
        return epoch or "", numbers

    def _last_given(
        self, fingerprint: bytes, row: int, up_to: int
    ) -> tuple[int | str, int | str, str]:
        """The exchange in which an own example was last given, its share number and its ground."""
        for epoch in sorted(self.given, reverse=True):
            number = self.given[epoch].number(fingerprint, row) if epoch <= up_to else None
            if number is not None:
                return epoch, number, self.given[epoch].grounds[number]
        return "", "", ""
