"""A site's store: everything that it keeps between messages.

One SQLite database in a folder of its own. Every change is one transaction, which is on the disk
when the call returns. Every row carries a digest of itself that is checked whenever it is read, so
damage is noticed. What is deleted is overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from fedcommons.federate.protocol import durable, keys
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.site import store_upgrade
from fedcommons.federate.site.changes import Changes
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.decoded import decoded_commit
from fedcommons.federate.site.epochs import Epochs
from fedcommons.federate.site.given import RESTORED, Given
from fedcommons.federate.site.grounds import Grounds
from fedcommons.federate.site.kept import KeptAnswer
from fedcommons.federate.site.keyring import Keyring
from fedcommons.federate.site.ledger import Deletion, Ledger
from fedcommons.federate.site.manifests import Manifest, Manifests
from fedcommons.federate.site.questions import Questions
from fedcommons.federate.site.received import ReceivedChunks
from fedcommons.federate.site.recovery import Recovery
from fedcommons.federate.site.store_format import SEALED, SMALL
from fedcommons.federate.site.withdrawals import Withdrawals, delete_what_left


class Store:
    """What a site keeps, each part under its own name, and the steps that change several parts."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        self.database = Database(folder, create=create)
        self.close = self.database.close
        self.ledger = Ledger(self.database)
        self.keyring = Keyring(self.database)
        self.epochs = Epochs(self.database, self.keyring)
        self.manifests = Manifests(self.database)
        self.questions = Questions(self.database)
        self.given = Given(self.database, self.ledger)
        self.changes = Changes(self.database, self.ledger)
        self.recovery = Recovery(self.database, self.ledger)
        self.received = ReceivedChunks(self.database, self.ledger)
        self.kept = KeptAnswer(self.database)
        self.withdrawals = Withdrawals(
            self.database,
            self.ledger,
            self.keyring,
            self.epochs,
            self.manifests,
            self.received,
            self.kept,
        )
        try:
            self._make_ready()
        except BaseException:
            self.close()
            raise

    def _make_ready(self) -> None:
        store_upgrade.upgrade(self.database)
        for table in SMALL:
            self.database.check_structure(f"quick_check({table})")
        self.database.wipe()  # a process that was killed may have left something
        if store_upgrade.backups(self.folder):
            self.check()
            store_upgrade.discard_backups(self.folder)

    def check(self) -> None:
        """Read everything; raise if anything is damaged."""
        self.database.check_structure("integrity_check")
        for table in SEALED:
            self.database.rows(table)
        self.received.check()
        self.kept.check()
        for _ in self.ledger.entries():
            pass

    # Who the site is

    @property
    def identity(self) -> keys.Identity:
        return self.keyring.identity

    @property
    def federation(self) -> str | None:
        name = self.database.get("federation")
        return None if name is None else name.decode()

    def join(self, federation: str) -> None:
        """Belong to this federation from now on; a store never changes its federation."""
        if self.federation is None:
            with self.database.writing("store.joined"):
                self.database.set("federation", federation.encode())

    @property
    def restored(self) -> str:
        """When the backup was made that the store was last restored from; empty if it never was."""
        return (self.database.get(RESTORED) or b"").decode()

    def note_restored(self, made: str, backup: bytes) -> None:
        """The store was restored from a backup that was made then and has this digest."""
        with self.database.writing("store.restored"):
            self.database.set(RESTORED, made.encode())
            self.ledger.note("restored", 0, "", 0, 0, 0, backup)

    # What an exchange brings

    def enter(
        self, epoch: Epoch, me: int, peers: Mapping[str, str], manifest: Manifest, grounds: Grounds
    ) -> None:
        """Take part in an epoch, and remember the keys of its sites and who gets what of this one.

        `grounds` are those of the site's share numbers, in order.
        """
        with self.database.writing("store.epoch"):
            self.epochs.enter(epoch.number, epoch.record, peers)
            self.given.note(epoch, me, manifest, grounds)

    def receive(
        self,
        number: int,
        epoch: bytes,
        sender: str,
        chunks: list[tuple[int, SharedExamples, bytes]],
    ) -> None:
        """Keep chunks of one sender, (chunk, examples, packed) each, if they are not here already.

        They are on the disk when this returns, unless the operator withdrew everything meanwhile.
        """
        with self.database.writing("store.received"):
            if not self.withdrawals.everything:
                self.received.add(number, epoch, sender, chunks)

    def give_up(self, committed: int, up_to: int, offered: Sequence[bytes] = ()) -> None:
        """Delete what exchanges after the committed epoch, up to another, have brought.

        The server gave these exchanges up. The keys that were `offered` for them are destroyed.
        """
        dead = {digest: n for digest, (n, _) in self.epochs.between(committed, up_to).items()}
        gone = [row[:4] for row in self.received.rows() if row[0] in dead] if dead else []
        useless = [key for key in offered if self.keyring.private_key(key) is not None]
        if not gone and not useless:
            return
        with self.database.writing("store.given_up"):
            for epoch, sender, chunk, _ in gone:
                self.received.delete(epoch, sender, chunk)
            deleted = [Deletion(*row) for row in gone]
            self.keyring.destroy(useless)
            self.ledger.note_deleted(deleted, max(dead.values(), default=0), 0, b"given up")
        with durable.point("store.wiped"):
            self.database.wipe()

    # The commit

    def commit_record(self) -> tuple[bytes, bytes]:
        """The digest and the record of the commit that the site is under; empty if none."""
        for _, digest, record in self.database.rows("commits"):
            return digest, record
        return b"", b""

    def apply(self, commit: Commit, me: int | None, withdrew: Set[str] = frozenset()) -> None:
        """Go under a commit: delete what it does not give this site, and the epoch's keys.

        `me` is the site's place in the roster, None if it has none; `withdrew` are the senders that
        withdrew something since the last commit.
        """
        with self.database.writing("store.commit"):
            if self.recovery.is_to(commit):
                self.epochs.forget_after(commit.number)
                self.recovery.end()
            unfinished = self.epochs.after(commit.number)
            deleted = delete_what_left(
                self.received, commit, me, unfinished=unfinished, withdrew=withdrew
            )
            if deleted or self._gives_less(commit, me):
                self.kept.delete()
            if not unfinished:
                self.keyring.destroy_all()
            if me is not None:
                self.manifests.drop_before(bytes.fromhex(commit.members[me].manifest))
                self.keyring.trust({member.site: member.identity for member in commit.members})
            self.epochs.note_committed(commit.number, bytes.fromhex(commit.epoch))
            self.database.put("commits", 1, commit.digest, commit.record)
            self.ledger.note_deleted(deleted, commit.number, commit.serial)
            self.ledger.note(
                "commit", commit.number, "", commit.serial, commit.n_examples, 0, commit.digest
            )
        with durable.point("store.wiped"):
            self.database.wipe()

    def _gives_less(self, commit: Commit, me: int | None) -> bool:
        """Whether a commit takes examples of its own from this site, or is of another exchange."""
        _, record = self.commit_record()
        if me is None or not record:
            return True
        current = decoded_commit(record)
        return current.number != commit.number or (
            current.withdrawn[me],
            current.withdrawn_private[me],
        ) != (commit.withdrawn[me], commit.withdrawn_private[me])
