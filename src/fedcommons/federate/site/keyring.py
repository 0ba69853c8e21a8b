"""The keys in a store: the site's identities, its keys for epochs, and the keys of its peers.

A site may replace its identity. The store keeps all that it had: a commit or an epoch is gone on
with under the key that it lists, and new exchanges are made under the newest. The first one is also
what fingerprints are keyed with, so that rows and withdrawals stay known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedcommons.errors import StoreError
from fedcommons.federate.protocol import keys
from fedcommons.federate.protocol.refusals import DrawRefused
from fedcommons.federate.site.database import Database

MOST_KEYS = 8  # kept for epochs that may still begin
REPLACED = "replaced key "  # with the key: a name in the store


class Keyring:
    """The keys that a site keeps."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def identities(self) -> list[keys.Identity]:
        """All that the site has had, the one that it has now last."""
        private = self._database.get("identity")
        if private is None:
            raise StoreError(f"store {self._database.folder} has lost its identity")
        found: list[keys.Identity] = []
        while private is not None:
            found.append(keys.Identity(private))
            private = self._database.get(f"identity {len(found) + 1}")
        return found

    @property
    def identity(self) -> keys.Identity:
        return self.identities[-1]

    @property
    def fingerprint_key(self) -> bytes:
        """The key of the fingerprints of this site's examples."""
        return self.identities[0].secret("fingerprints")

    def rotate(self) -> None:
        """Make a new identity, for the next exchange and all that follow."""
        with self._database.writing("store.rotated"):
            n = len(self.identities)
            self._database.set(f"identity {n + 1}", keys.Identity.create().private)

    @property
    def batch_secret(self) -> bytes:
        """What the order of this site's batches is mixed with."""
        return self.identities[0].secret("batches")

    # Epoch keys

    def fresh_key(self, value: bytes = b"") -> bytes:
        """Make a key for the next epoch, to be drawn with this value too; its public half."""
        public, private = keys.fresh_epoch_key()
        with self._database.writing("store.key"):
            ((last,),) = self._database.run("SELECT COALESCE(MAX(id), 0) FROM epoch_keys")
            self._database.put("epoch_keys", last + 1, public, private, value, b"")
            self._database.run("DELETE FROM epoch_keys WHERE id <= ?", (last + 1 - MOST_KEYS,))
        return public

    def private_key(self, public: bytes) -> bytes | None:
        return {row[1]: row[2] for row in self._database.rows("epoch_keys")}.get(public)

    def revealed_for(self, public: bytes) -> bytes | None:
        """The digest of the proposal for which the key's value was revealed; None if no such key.

        It is empty if the value was not revealed.
        """
        return {row[1]: row[4] for row in self._database.rows("epoch_keys")}.get(public)

    def reveal(self, public: bytes, proposal: bytes) -> bytes:
        """The value that was promised with a key, for this proposal alone, inside a transaction."""
        for number, key, private, value, known in self._database.rows("epoch_keys"):
            if key == public and known in (b"", proposal):
                self._database.put("epoch_keys", number, key, private, value, proposal)
                return bytes(value)
        raise DrawRefused("the value that was promised with this key is for another draw")

    def destroy(self, publics: Iterable[bytes]) -> None:
        """Destroy these epoch keys, inside a transaction."""
        for public in publics:
            self._database.run("DELETE FROM epoch_keys WHERE public = ?", (public,))

    def destroy_all(self) -> None:
        """Destroy every epoch key, inside a transaction."""
        self._database.run("DELETE FROM epoch_keys")

    # Peers

    def trusted_peers(self) -> dict[str, str]:
        """The keys that sites had in the epochs this site took part in: site -> identity."""
        return dict(self._database.rows("peers"))

    def replaced_peers(self) -> dict[str, str]:
        """Keys that sites had before the ones that are trusted now: identity -> site."""
        return {
            name.removeprefix(REPLACED): site.decode()
            for name, site in self._database.rows("about")
            if name.startswith(REPLACED)
        }

    def replace_peer(self, site: str, identity: str, replaced: Iterable[str]) -> None:
        """Trust another key of a site from now on; the ones that it replaces are remembered."""
        with self._database.writing("store.trusted"):
            self._database.put("peers", site, identity)
            for old in replaced:
                self._database.set(f"{REPLACED}{old}", site.encode())

    def trust(self, peers: Mapping[str, str]) -> None:
        """Remember the keys of sites that were not known, inside a transaction."""
        known = self.trusted_peers()
        for site, identity in peers.items():
            if site not in known:
                self._database.put("peers", site, identity)
