"""Withdrawals at a site: its own, whether its store remembers them, and those of others."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from fedcommons import shown
from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import StoreError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import DataChanged, StoreIsOlder
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.site import chunk_memory
from fedcommons.federate.site.data_files import data_behind
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.decoded import decoded_commit
from fedcommons.federate.site.epochs import Epochs
from fedcommons.federate.site.kept import KeptAnswer
from fedcommons.federate.site.keyring import Keyring
from fedcommons.federate.site.ledger import Deletion, Ledger
from fedcommons.federate.site.manifests import Manifest, Manifests, among
from fedcommons.federate.site.received import ReceivedChunks
from fedcommons.federate.site.spool import SPOOL

logger = shown.logger(__name__)


class Withdrawals:
    """What this site withdrew.

    Examples are remembered by their fingerprints, so that they stay withdrawn when the data file is
    written anew.
    """

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        keyring: Keyring,
        epochs: Epochs,
        manifests: Manifests,
        received: ReceivedChunks,
        kept: KeptAnswer,
    ) -> None:
        self._database, self._ledger, self._keyring = database, ledger, keyring
        self._epochs, self._manifests, self._received = epochs, manifests, received
        self._kept = kept

    # What was withdrawn

    @property
    def everything(self) -> bool:
        """Whether the operator withdrew everything: the site has left the federation."""
        return self._database.get("withdrew all") is not None

    def fingerprints(self) -> set[bytes]:
        return {fingerprint for fingerprint, _, _ in self._database.rows("withdrawals")}

    def rows(self, total: int) -> list[tuple[bytes, int]]:
        """(fingerprint, row) of what was withdrawn when it came to so many examples in total.

        0 stands for what was withdrawn before stores kept when.
        """
        rows = self._database.rows("withdrawals")
        return sorted(((f, row) for f, row, at in rows if at == total), key=lambda one: one[1])

    def gone(self, manifest: Manifest) -> BoolArray:
        """(rows,) the rows that took part when they were numbered and were withdrawn since."""
        return among(manifest.fingerprints, self.fingerprints()) & manifest.live

    def since(self, manifest: Manifest) -> Withdrawn:
        """What was withdrawn since the rows were numbered."""
        gone = self.gone(manifest)
        numbers = np.flatnonzero(gone[manifest.share_rows])
        return Withdrawn(tuple(numbers.tolist()), int(gone.sum()) - len(numbers))

    # Withdrawing

    def withdraw(self, rows: IntArray, *, as_offered: bool = False) -> int:
        """Withdraw rows for good, and all rows that equal one of them.

        Row numbers are those of the data file when it was offered. So the file must not have
        changed since, unless `as_offered` says that these numbers are meant all the same.
        Returns how many different examples were not withdrawn before.
        """
        manifest = self._manifests.newest()
        if manifest is None:
            raise StoreError(
                f"store {self._database.folder} has offered nothing yet: nothing to withdraw"
            )
        if not as_offered:
            self._check_file(manifest)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(manifest.live)):
            wrong = rows.min() if rows.min() < 0 else rows.max()
            raise StoreError(f"rows must be in 0 to {len(manifest.live) - 1}, got {wrong}")
        with self._database.writing("store.withdrawn"):
            before = self.fingerprints()
            fresh = {manifest.fingerprints[row].tobytes(): int(row) for row in rows}
            fresh = {f: row for f, row in fresh.items() if f not in before}
            total = len(before) + len(fresh)
            for fingerprint, row in fresh.items():
                self._database.put("withdrawals", fingerprint, row, total)
            if fresh:
                self._kept.delete()
                epoch = self._epochs.highest()[0]
                self._ledger.note("withdrawn", epoch, "", total, len(fresh), 0)
        self._database.wipe()
        chunk_memory.clear(self._database.folder)
        return len(fresh)

    def _check_file(self, manifest: Manifest) -> None:
        """The file that was numbered must be unchanged; if it is gone, there is no confusion."""
        data = data_behind(manifest.stamp, spool=self._database.folder / SPOOL)
        if data is None:
            return
        try:
            self._manifests.check_unchanged(manifest, data, self._keyring.fingerprint_key)
        except DataChanged:
            raise StoreError(
                f"rows must be those of the file that was offered, but {data.source} has changed "
                "since: put the old file back, or take part in a new exchange first; "
                "--as-offered goes by the numbers of the old file"
            ) from None

    def withdraw_everything(self) -> None:
        """Leave the federation, and delete all that was received."""
        with self._database.writing("store.withdrew_all"):
            epoch, held = self._epochs.highest()[0], self._received.rows()
            self._database.set("withdrew all", b"1")
            self._received.delete_all()
            self._kept.delete()
            self._keyring.destroy_all()
            deleted = [Deletion(*row[:4]) for row in held]
            self._ledger.note_deleted(deleted, epoch, 0, b"withdrew all")
            self._ledger.note("withdrawn", epoch, "everything", 0, 0, 0)
        with durable.point("store.wiped"):
            self._database.wipe()
        chunk_memory.clear(self._database.folder)

    # Whether the store remembers them all

    @property
    def forgotten_in(self) -> bytes:
        """The record of a commit that lists withdrawals this store does not know; else empty."""
        return self._database.get("older than") or b""

    def note_forgotten_in(self, commit: bytes) -> None:
        if self.forgotten_in != commit:
            with self._database.writing("store.older"):
                self._database.set("older than", commit)

    def check_remembered(self, commit: Commit, me: int | None) -> None:
        """Raise if a commit lists withdrawals of this site that its store does not know.

        The store is then older than the commit: restored from a backup, perhaps. `me` is the site's
        place in the roster.
        """
        if me is None or not (commit.withdrawn[me] or commit.withdrawn_private[me]):
            return
        manifest = self._manifests.find(bytes.fromhex(commit.members[me].manifest))
        if manifest is None:
            logger.error(
                "examples were withdrawn from the exchange of epoch %d, but this store is older "
                "than that exchange: put a newer copy of it in place, or remove these examples "
                "from the data file and begin with a new store",
                commit.number,
            )
            self.note_forgotten_in(commit.record)
            raise StoreIsOlder("the store does not know the exchange that the site withdrew from")
        manifest = manifest.for_place(commit, me)
        found = self.since(manifest)
        forgotten = sorted(set(commit.withdrawn[me]) - set(found.numbers))
        n_private = commit.withdrawn_private[me] - found.n_private
        if forgotten or n_private > 0:
            logger.error(
                "this store does not know of all withdrawals, because it is older than they are: "
                "withdraw rows %s of the data file again (as it was when it was offered), and %d "
                "rows that were not shared",
                manifest.share_rows[forgotten].tolist(),
                max(n_private, 0),
            )
            self.note_forgotten_in(commit.record)  # also if others go on without this site
            raise StoreIsOlder("the store does not know of all that the site withdrew")

    def check_all_remembered(self, own: bytes, committed: bytes, identities: Sequence[str]) -> None:
        """Raise if any commit lists withdrawals of this site that its store does not know.

        The records are those of the commit that the site is under and of the server's; empty if
        there is none. The site may be listed under any of its `identities`.
        """

        def place(commit: Commit) -> int | None:
            places = (commit.index(identity) for identity in identities)
            return next((place for place in places if place is not None), None)

        under = decoded_commit(own) if own else None
        settled = under.number if under and place(under) is not None else 0
        for record in dict.fromkeys((own, self.forgotten_in, committed)):
            # Withdrawals from an earlier exchange were checked when the later one was made.
            if record and (commit := decoded_commit(record)).number >= settled:
                self.check_remembered(commit, place(commit))
        self.note_forgotten_in(b"")


# What others' withdrawals mean for what was received


def senders_who_withdrew(commit: Commit, current: Commit | None) -> set[str]:
    """Who withdrew examples, or left, between the current commit and a later one of its epoch."""
    if current is None or current.epoch != commit.epoch:
        return set()
    return {
        member.identity
        for i, member in enumerate(current.members)
        if commit.withdrawn[i] != current.withdrawn[i] or commit.present[i] != current.present[i]
    }


def delete_what_left(
    received: ReceivedChunks,
    commit: Commit,
    me: int | None,
    *,
    unfinished: Set[bytes],
    withdrew: Set[str],
) -> list[Deletion]:
    """Delete all that a commit does not give this site, and say what that was.

    Epochs after the commit's are `unfinished`, and what they brought stays. Only chunks of senders
    in `withdrew` are deleted there too, since a withdrawn example may be among them under another
    number.
    """
    epoch = bytes.fromhex(commit.epoch)
    given = {
        (epoch, commit.members[sender].identity): sender
        for sender, recipient in commit.pairs
        if recipient == me
    }
    deleted = []
    for of_epoch, sender, chunk, n, *_ in received.rows():
        owner = given.get((of_epoch, sender))
        if of_epoch in unfinished and sender not in withdrew:
            pass
        elif owner is None:
            received.delete(of_epoch, sender, chunk)
            deleted.append(Deletion(of_epoch, sender, chunk, n))
        elif commit.withdrawn[owner]:
            examples = received.examples(of_epoch, sender, chunk)
            gone = np.isin(examples.numbers, commit.withdrawn[owner])
            if gone.any():
                received.replace(of_epoch, sender, chunk, examples.select(~gone))
                numbers = examples.numbers[gone].astype("<i8").tobytes()
                deleted.append(Deletion(of_epoch, sender, chunk, int(gone.sum()), numbers))
    return deleted
