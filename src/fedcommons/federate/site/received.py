"""The chunks that a site received from others, as its store keeps them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from fedcommons.errors import StoreError
from fedcommons.federate.protocol import packing
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.ledger import Ledger
from fedcommons.federate.site.store_format import row_digest

CHUNK = "epoch = ? AND sender = ? AND chunk = ?"


class ReceivedChunks:
    """Examples of other sites, chunk by chunk.

    A chunk that lost examples to a withdrawal keeps the digest of how it came, so that it is
    recognised if it is sent again.
    """

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database, self._ledger = database, ledger

    # Reading

    def rows(self, where: str = "TRUE", values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """What is known of chunks: (epoch, sender, chunk, examples, digest, original digest)."""
        rows = self._database.run(
            "SELECT epoch, sender, chunk, n, digest, original, seal FROM received "  # noqa: S608
            f"WHERE {where} ORDER BY epoch, sender, chunk",
            values,
        )
        return [self._database.unsealed("received", row) for row in rows]

    def examples(self, epoch: bytes, sender: str, chunk: int) -> SharedExamples:
        """One chunk's examples; raise if they are not what was received."""
        expected = [row[4] for row in self.rows(CHUNK, (epoch, sender, chunk))]
        found = self._database.run(
            f"SELECT CAST(content AS BLOB) FROM received WHERE {CHUNK}",  # noqa: S608 (our own)
            (epoch, sender, chunk),
        )
        if len(found) != 1 or [hashlib.sha256(found[0][0]).digest()] != expected:
            raise StoreError(
                f"store {self._database.folder} is damaged: chunk {chunk} of {sender[:8]}"
            )
        return packing.unpack(found[0][0])

    def original_digest(self, epoch: bytes, sender: str, chunk: int) -> bytes | None:
        """The digest of a chunk as it came; None if it is not here."""
        for row in self.rows(CHUNK, (epoch, sender, chunk)):
            return bytes(row[-1])
        return None

    def n_examples(self, epoch: bytes, sender: str) -> int:
        """How many examples of the sender are here."""
        return sum(row[3] for row in self._of(epoch, sender))

    def chunks(self, epoch: bytes, sender: str) -> Iterator[SharedExamples]:
        """What came from the sender, in order."""
        for _, _, chunk, *_ in self._of(epoch, sender):
            yield self.examples(epoch, sender, chunk)

    def counts(self) -> list[tuple[str, int]]:
        """How many examples of each sender are here: (identity, examples)."""
        found: dict[str, int] = {}
        for _, sender, _, n, _, _ in self.rows():
            found[sender] = found.get(sender, 0) + n
        return sorted(found.items())

    def check(self) -> None:
        """Read everything; raise if anything is damaged."""
        for epoch, sender, chunk, *_ in self.rows():
            self.examples(epoch, sender, chunk)

    def _of(self, epoch: bytes, sender: str) -> list[tuple[Any, ...]]:
        return self.rows("epoch = ? AND sender = ?", (epoch, sender))

    # Writing, inside a transaction

    def add(
        self,
        number: int,
        epoch: bytes,
        sender: str,
        chunks: list[tuple[int, SharedExamples, bytes]],
    ) -> None:
        """Add a sender's chunks, (chunk, examples, packed) each; one that is here already stays."""
        for chunk, examples, packed in chunks:
            if self.original_digest(epoch, sender, chunk) is None:
                digest = hashlib.sha256(packed).digest()
                self._put(epoch, sender, chunk, len(examples), digest, packed)
                self._ledger.note("received", number, sender, chunk, len(examples), len(packed))

    def replace(self, epoch: bytes, sender: str, chunk: int, stays: SharedExamples) -> None:
        """Keep only these examples of a chunk."""
        original = self.original_digest(epoch, sender, chunk) or b""
        self._put(epoch, sender, chunk, len(stays), original, stays.pack())

    def delete(self, epoch: bytes, sender: str, chunk: int) -> None:
        self._database.run(f"DELETE FROM received WHERE {CHUNK}", (epoch, sender, chunk))  # noqa: S608

    def delete_all(self) -> None:
        self._database.run("DELETE FROM received")

    def _put(
        self, epoch: bytes, sender: str, chunk: int, n: int, original: bytes, packed: bytes
    ) -> None:
        fields = (epoch, sender, chunk, n, hashlib.sha256(packed).digest(), original)
        self._database.run(
            "INSERT OR REPLACE INTO received VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*fields, row_digest("received", *fields), packed),
        )
