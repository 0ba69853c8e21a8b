"""The epochs that a site has seen, as its store keeps them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fedcommons.federate.site.database import Database
from fedcommons.federate.site.decoded import decoded_epoch
from fedcommons.federate.site.keyring import Keyring


class Epochs:
    """The number and digest of every epoch that a site has seen, and the records it took part in.

    An epoch that the site knows only from its commit has an empty record.
    """

    def __init__(self, database: Database, keyring: Keyring) -> None:
        self.database, self._keyring = database, keyring

    def highest(self) -> tuple[int, bytes]:
        """The number and digest of the highest epoch; (0, b"") if there is none."""
        return max(((n, digest) for n, digest, _ in self._all()), default=(0, b""))

    def record(self, digest: bytes) -> bytes:
        """The record of the epoch with this digest; empty if the site did not take part in it."""
        return {known: record for _, known, record in self._all()}.get(digest, b"")

    def lists(self, identity: str) -> bool:
        """Whether a site had this key in an epoch that is still remembered."""
        return any(
            offer.identity == identity
            for _, _, record in self._all()
            if record
            for offer in decoded_epoch(record).sites
        )

    def between(self, after: int, up_to: int) -> dict[bytes, tuple[int, bytes]]:
        """The epochs with numbers in (after, up_to]: (number, record) by digest."""
        return {digest: (n, record) for n, digest, record in self._all() if after < n <= up_to}

    def after(self, number: int) -> set[bytes]:
        """The digests of the epochs after this number."""
        return {digest for n, digest, _ in self._all() if n > number}

    def enter(self, number: int, record: bytes, peers: Mapping[str, str]) -> None:
        """Take part in an epoch, and remember the keys of its sites, inside a transaction."""
        self.database.put("epochs", number, hashlib.sha256(record).digest(), record)
        self._keyring.trust(peers)

    def note_committed(self, number: int, digest: bytes) -> None:
        """Remember the epoch of a commit that the site had no part in, inside a transaction."""
        if number > self.highest()[0]:
            self.database.put("epochs", number, digest, b"")

    def forget_after(self, number: int) -> None:
        """Forget the epochs after this one, which somebody invented, inside a transaction."""
        self.database.run("DELETE FROM epochs WHERE number > ?", (number,))

    def _all(self) -> list[tuple[int, bytes, bytes]]:
        """(number, digest, record) of each."""
        return [(n, digest, record) for n, digest, record in self.database.rows("epochs")]
