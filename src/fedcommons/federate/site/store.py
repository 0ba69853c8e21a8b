"""A site's store: its identity, what it received, what it is committed to, and its ledger.

One SQLite database in a folder of its own. Every change is one transaction that is on the disk when
it returns. Every row carries a digest of itself that is checked whenever it is read, so that damage
is noticed; what is deleted is overwritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from fedcommons.checks import IntArray
from fedcommons.errors import StoreError
from fedcommons.federate.protocol import durable, keys, packing
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.packing import Examples
from fedcommons.federate.site.database import STATE, row_digest
from fedcommons.federate.site.ledger import Ledger
from fedcommons.federate.site.manifest import Manifest

MOST_KEYS = 8  # of epochs that never came about
CHUNK = "epoch = ? AND sender = ? AND chunk = ?"


class Store(Ledger):
    """What a site keeps."""

    def check(self) -> None:
        """Read everything; raise if anything is damaged."""
        self._check_structure("integrity_check")
        for table in STATE[:-1]:
            self._all(table)
        for epoch, sender, chunk, *_ in self._chunks():
            self._chunk(epoch, sender, chunk)
        for _ in self.ledger():
            pass

    # Who the site is

    @property
    def identity(self) -> keys.Identity:
        private = self._get("identity")
        if private is None:
            raise StoreError(f"store {self.folder} has lost its identity")
        return keys.Identity(private)

    @property
    def federation(self) -> str | None:
        name = self._get("federation")
        return None if name is None else name.decode()

    def join(self, federation: str) -> None:
        """Belong to this federation from now on; a store never changes its federation."""
        if self.federation is None:
            with self._writing("store.joined"):
                self._set("federation", federation.encode())

    def trusted_peers(self) -> dict[str, str]:
        """The keys that sites had in the epochs this site took part in: site -> identity."""
        return dict(self._all("peers"))

    def _trust(self, peers: Mapping[str, str]) -> None:
        known = self.trusted_peers()
        for site, identity in peers.items():
            if site not in known:
                self._put("peers", site, identity)

    # What it has

    def manifest(self, digest: bytes | None = None) -> Manifest | None:
        """The manifest with this digest, or the newest one; None if there is none."""
        for _, stamp, content, name, live, shareable, fingerprints in reversed(self._manifests()):
            if digest in (None, name):
                return Manifest(
                    stamp,
                    content,
                    name,
                    np.frombuffer(live, np.bool_),
                    np.frombuffer(shareable, np.bool_),
                    np.frombuffer(fingerprints, np.uint8).reshape(-1, 16),
                )
        return None

    def _manifests(self) -> list[tuple[Any, ...]]:
        """The rows of all manifests, the newest last."""
        return sorted(self._all("manifest"), key=lambda row: row[0])

    def number_rows(self, manifest: Manifest) -> None:
        """Keep a manifest as the newest; those before it stay until a commit replaces them."""
        with self._writing("store.manifest"):
            newest = max((row[0] for row in self._manifests()), default=0)
            self._run("DELETE FROM manifest WHERE digest = ?", (manifest.digest,))
            self._put_manifest(newest + 1, manifest)

    def stamp(self, manifest: Manifest) -> None:
        """Note another stamp of the data that a manifest numbered; its place stays."""
        with self._writing("store.manifest"):
            for place, _, _, digest, *_ in self._manifests():
                if digest == manifest.digest:
                    self._put_manifest(place, manifest)

    def _put_manifest(self, place: int, manifest: Manifest) -> None:
        self._put(
            "manifest",
            place,
            manifest.stamp,
            manifest.content,
            manifest.digest,
            manifest.live.tobytes(),
            manifest.shareable.tobytes(),
            manifest.fingerprints.tobytes(),
        )

    def _drop_manifests_before(self, digest: bytes) -> None:
        for row in self._manifests():
            if row[3] == digest:
                self._run("DELETE FROM manifest WHERE id < ?", (row[0],))

    # The exchange

    def fresh_key(self) -> bytes:
        """A new key for the next epoch; its public half."""
        public, private = keys.fresh_epoch_key()
        with self._writing("store.key"):
            ((last,),) = self._run("SELECT COALESCE(MAX(id), 0) FROM epoch_keys")
            self._put("epoch_keys", last + 1, public, private)
            self._run("DELETE FROM epoch_keys WHERE id <= ?", (last + 1 - MOST_KEYS,))
        return public

    def private_key(self, public: bytes) -> bytes | None:
        return {row[1]: row[2] for row in self._all("epoch_keys")}.get(public)

    def highest_epoch(self) -> tuple[int, bytes]:
        """The number and digest of the highest epoch that the site has seen; 0 if none."""
        return max(
            ((number, digest) for number, digest, _ in self._all("epochs")), default=(0, b"")
        )

    def epoch_record(self, digest: bytes) -> bytes:
        """The record of an epoch that the site took part in; empty if it did not."""
        return {known: record for _, known, record in self._all("epochs")}.get(digest, b"")

    def enter_epoch(self, number: int, record: bytes, peers: Mapping[str, str]) -> None:
        with self._writing("store.epoch"):
            self._put("epochs", number, hashlib.sha256(record).digest(), record)
            self._trust(peers)

    def note_sent(self, epoch: int, sent: list[tuple[str, int, int, int]]) -> None:
        """Into the ledger: (peer, chunk, examples, bytes) of each envelope."""
        with self._writing("store.sent"):
            for peer, chunk, examples, size in sent:
                self._note("sent", epoch, peer, chunk, examples, size)

    def receive(
        self, number: int, epoch: bytes, sender: str, chunks: list[tuple[int, Examples, bytes]]
    ) -> None:
        """Keep chunks of one sender: (chunk, examples, packed). All are there after the return.

        A chunk that is here already stays as it is.
        """
        with self._writing("store.received"):
            if self.withdrew_all:  # the operator did at this moment
                return
            for chunk, examples, packed in chunks:
                if self.received_digest(epoch, sender, chunk) is None:
                    digest = hashlib.sha256(packed).digest()
                    self._keep(epoch, sender, chunk, len(examples), digest, packed)
                    self._note("received", number, sender, chunk, len(examples), len(packed))

    def _keep(
        self, epoch: bytes, sender: str, chunk: int, n: int, original: bytes, packed: bytes
    ) -> None:
        fields = (epoch, sender, chunk, n, hashlib.sha256(packed).digest(), original)
        self._run(
            "INSERT OR REPLACE INTO received VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*fields, row_digest("received", *fields), packed),
        )

    def _chunks(self, where: str = "TRUE", values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """What is known of received chunks: (epoch, sender, chunk, n, digest, original)."""
        rows = self._run(
            "SELECT epoch, sender, chunk, n, digest, original, seal FROM received "  # noqa: S608
            f"WHERE {where} ORDER BY epoch, sender, chunk",
            values,
        )
        return [self._unsealed("received", row) for row in rows]

    def _chunk(self, epoch: bytes, sender: str, chunk: int) -> Examples:
        """One chunk's examples, if they are what was received."""
        expected = [row[4] for row in self._chunks(CHUNK, (epoch, sender, chunk))]
        found = self._run(
            f"SELECT CAST(content AS BLOB) FROM received WHERE {CHUNK}",  # noqa: S608 (our own)
            (epoch, sender, chunk),
        )
        if len(found) != 1 or [hashlib.sha256(found[0][0]).digest()] != expected:
            raise StoreError(f"store {self.folder} is damaged: chunk {chunk} of {sender[:8]}")
        return packing.unpack(found[0][0])

    def received_digest(self, epoch: bytes, sender: str, chunk: int) -> bytes | None:
        """The digest of a chunk as it came, if it is here."""
        for row in self._chunks(CHUNK, (epoch, sender, chunk)):
            return bytes(row[-1])
        return None

    def n_received(self, epoch: bytes, sender: str) -> int:
        """How many examples of the sender are here."""
        rows = self._chunks("epoch = ? AND sender = ?", (epoch, sender))
        return sum(n for _, _, _, n, _, _ in rows)

    def chunks(self, epoch: bytes, sender: str) -> Iterator[Examples]:
        """What came from the sender, in order; damage is noticed."""
        for _, _, chunk, *_ in self._chunks("epoch = ? AND sender = ?", (epoch, sender)):
            yield self._chunk(epoch, sender, chunk)

    def holdings(self) -> list[tuple[str, int]]:
        """How many examples of each sender are here: (identity, examples)."""
        found: dict[str, int] = {}
        for _, sender, _, n, _, _ in self._chunks():
            found[sender] = found.get(sender, 0) + n
        return sorted(found.items())

    # Commits

    def commit_record(self) -> tuple[bytes, bytes]:
        """The digest and the record of the commit that the site is under; empty if none."""
        for _, digest, record in self._all("commits"):
            return digest, record
        return b"", b""

    def apply(self, commit: Commit, me: int | None, took_back: Set[str] = frozenset()) -> None:
        """Come under a commit: delete what it does not give this site, and the epoch's keys.

        What an exchange under way has brought stays, but for the chunks of those who `took_back`
        something: it may be among them, under another number.
        """
        epoch = bytes.fromhex(commit.epoch)
        keep = {
            (epoch, commit.members[sender].identity): sender
            for sender, recipient in commit.pairs
            if recipient == me
        }
        with self._writing("store.commit"):
            later = {name for number, name, _ in self._all("epochs") if number > commit.number}
            deleted: dict[str, int] = {}
            for of_epoch, sender, chunk, n, _, original in self._chunks():
                place = keep.get((of_epoch, sender))
                if of_epoch in later and sender not in took_back:
                    n = 0
                elif place is None:
                    self._run(f"DELETE FROM received WHERE {CHUNK}", (of_epoch, sender, chunk))  # noqa: S608
                elif commit.withdrawn[place]:
                    examples = self._chunk(of_epoch, sender, chunk)
                    stays = examples.select(~np.isin(examples.numbers, commit.withdrawn[place]))
                    n -= len(stays)
                    if n:
                        packed = stays.pack()
                        self._keep(of_epoch, sender, chunk, len(stays), original, packed)
                else:
                    n = 0
                deleted[sender] = deleted.get(sender, 0) + n
            if not later:
                self._run("DELETE FROM epoch_keys")
            if me is not None:
                self._drop_manifests_before(bytes.fromhex(commit.members[me].manifest))
                self._trust({member.site: member.identity for member in commit.members})
            if commit.number > self.highest_epoch()[0]:
                self._put("epochs", commit.number, epoch, b"")
            self._put("commits", 1, commit.digest, commit.record)
            self._note_deleted(deleted, commit.number, commit.serial)
            self._note(
                "commit", commit.number, "", commit.serial, commit.n_examples, 0, commit.digest
            )
        with durable.point("store.wiped"):
            self._wipe()

    def give_up(self, committed: int, up_to: int, keys: Sequence[bytes] = ()) -> None:
        """Delete what exchanges after the committed epoch brought that nobody will go on with.

        Their `keys`, by the public halves, too.
        """
        dead = {digest: n for n, digest, _ in self._all("epochs") if committed < n <= up_to}
        gone = [row[:4] for row in self._chunks() if row[0] in dead] if dead else []
        useless = [key for key in keys if self.private_key(key) is not None]
        if not gone and not useless:
            return
        with self._writing("store.given_up"):
            deleted: dict[str, int] = {}
            for epoch, sender, chunk, n in gone:
                self._run(f"DELETE FROM received WHERE {CHUNK}", (epoch, sender, chunk))  # noqa: S608
                deleted[sender] = deleted.get(sender, 0) + n
            for key in useless:
                self._run("DELETE FROM epoch_keys WHERE public = ?", (key,))
            self._note_deleted(deleted, max(dead.values(), default=0), 0, b"given up")
        with durable.point("store.wiped"):
            self._wipe()

    def epochs_between(self, after: int, up_to: int) -> list[bytes]:
        """The records of the epochs in (after, up_to] that the site took part in."""
        return [record for n, _, record in self._all("epochs") if after < n <= up_to and record]

    def note_receipts(
        self, epoch: int, receipts: list[tuple[str, int, bytes]], event: str = "receipt"
    ) -> None:
        """Into the ledger: (peer, examples, signature) of what arrived there, or here."""
        with self._writing("store.receipts"):
            for peer, examples, signature in receipts:
                self._note(event, epoch, peer, 0, examples, 0, signature)

    # Withdrawal

    def withdraw(self, rows: IntArray) -> int:
        """Take rows back for good, and all rows that equal one of them.

        Returns how many contents were not withdrawn before.
        """
        manifest = self.manifest()
        if manifest is None:
            raise StoreError(f"store {self.folder} has offered nothing yet: nothing to withdraw")
        if len(rows) and (rows.min() < 0 or rows.max() >= len(manifest.live)):
            wrong = rows.min() if rows.min() < 0 else rows.max()
            raise StoreError(f"rows must be in 0 to {len(manifest.live) - 1}, got {wrong}")
        with self._writing("store.withdrawn"):
            before = self.withdrawn_fingerprints()
            fresh = {manifest.fingerprints[row].tobytes(): int(row) for row in rows}
            fresh = {f: row for f, row in fresh.items() if f not in before}
            for fingerprint, row in fresh.items():
                self._put("withdrawals", fingerprint, row)
            if fresh:
                after = len(before) + len(fresh)
                self._note("withdrawn", self.highest_epoch()[0], "", after, len(fresh), 0)
        self._wipe()
        return len(fresh)

    @property
    def older_than(self) -> bytes:
        """The record of a commit that knows of more withdrawals than this store; empty if none."""
        return self._get("older than") or b""

    def note_older_than(self, commit: bytes) -> None:
        if self.older_than != commit:
            with self._writing("store.older"):
                self._set("older than", commit)

    def withdraw_all(self) -> None:
        """Take everything back: the site leaves the federation, and deletes what it received."""
        with self._writing("store.withdrew_all"):
            epoch, held = self.highest_epoch()[0], dict(self.holdings())
            self._set("withdrew all", b"1")
            self._run("DELETE FROM received")
            self._run("DELETE FROM epoch_keys")
            self._note_deleted(held, epoch, 0, b"withdrew all")
            self._note("withdrawn", epoch, "everything", 0, 0, 0)
        with durable.point("store.wiped"):
            self._wipe()

    @property
    def withdrew_all(self) -> bool:
        return self._get("withdrew all") is not None

    def withdrawn_fingerprints(self) -> set[bytes]:
        return {fingerprint for fingerprint, _ in self._all("withdrawals")}
