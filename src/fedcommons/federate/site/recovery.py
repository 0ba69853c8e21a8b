"""Back from a commit that somebody invented: the operator names the right one by its digest."""

from __future__ import annotations

from fedcommons.errors import ArgumentError, StoreError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.ledger import Ledger
from fedcommons.federate.site.policy import HASH


class Recovery:
    """The commit that a store accepts as its next one, although it does not follow."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database, self._ledger = database, ledger

    @property
    def to(self) -> str:
        """The digest in hexadecimal; empty if nothing is to be recovered."""
        return (self._database.get("recover to") or b"").decode()

    def is_to(self, commit: Commit) -> bool:
        return self.to == commit.digest.hex()

    def begin(self, digest: str) -> None:
        """Accept the commit with this digest, in hexadecimal, when the server shows it."""
        if not HASH.fullmatch(digest):
            raise ArgumentError(f"commit must be a digest of 64 hexadecimal digits, got {digest!r}")
        if not self._database.rows("commits"):
            raise StoreError(
                f"store {self._database.folder} is under no commit: nothing to recover"
            )
        with self._database.writing("store.recovery"):
            self._database.set("recover to", digest.encode())
            self._ledger.note("recovery", 0, "", 0, 0, 0, bytes.fromhex(digest))

    def end(self) -> None:
        """It is done, inside a transaction."""
        self._database.set("recover to", b"")
