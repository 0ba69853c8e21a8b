"""A site under a commit: what it goes under, holds, and trains on.

Nothing here knows of Flower: records and bytes go in and out. Whatever is not right is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.errors import FedcommonsError, StoreError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.protocol.receipts import Receipt
from fedcommons.federate.protocol.records import LARGEST
from fedcommons.federate.protocol.refusals import CommitRefused, CommitUnknown, Refusal
from fedcommons.federate.protocol.withdrawals import Withdrawn, is_owners_word, listed_in
from fedcommons.federate.site import chunk_memory
from fedcommons.federate.site.decoded import decoded_commit, decoded_epoch
from fedcommons.federate.site.exchange import Exchange
from fedcommons.federate.site.following import (
    Proof,
    check_deliveries,
    check_follows,
    check_still_here,
    check_withdrawals,
)
from fedcommons.federate.site.holdings import Holdings, holdings_of
from fedcommons.federate.site.manifests import Manifest
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.participant import Participant
from fedcommons.federate.site.policy import Policy
from fedcommons.federate.site.store import Store
from fedcommons.federate.site.withdrawals import senders_who_withdrew


class Site(Participant):
    """One site: it takes part in exchanges, and trains under the commits that follow them."""

    def __init__(
        self,
        store: Store,
        data: SiteData,
        name: str,
        peers: Mapping[str, str] | None,
        policy: Policy,
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(store, data, name, peers, policy, replaced)
        self._holdings: tuple[bytes, Holdings] | None = None

    @property
    def exchange(self) -> Exchange:
        return Exchange(self)

    def apply_commit(
        self, record: bytes, *, given_up: int = 0, proof: Proof | None = None
    ) -> Commit:
        """Go under a commit, or stay under it; refuse one that cannot follow the current one.

        The server has given up all exchanges after it, up to the epoch `given_up`. The `proof`
        shows that what it says of this site's deliveries happened.
        """
        self.check_taking_part()
        commit = decoded_commit(record)
        current_record = self.store.commit_record()[1]
        current = decoded_commit(current_record) if current_record else None
        me = commit.index(self.identity_in(commit.members).name)
        if record != current_record:
            self.check_federation(commit.federation)
            present = {m.site: m.identity for m in commit.members_present}
            epoch = bytes.fromhex(commit.epoch)
            self.check_peers(present, taking_part=me is not None, epoch=epoch)
            if self.store.recovery.is_to(commit):  # the operator says that it is the right one
                if me is not None:
                    check_still_here(self.store, commit, me)
            else:
                check_follows(self.store, commit, current)
                check_withdrawals(commit, current)
                if me is not None:
                    check_deliveries(self.store, commit, me, current, proof or Proof())
            # Before this site's own data are checked: what others withdrew must go in any case.
            self._forget_chunks(commit, me)
            withdrew = senders_who_withdrew(commit, current)
            self.store.apply(commit, me, withdrew | self._later_keys(withdrew, commit))
        self.store.give_up(commit.number, given_up, self._keys_of(commit.number, given_up))
        if me is None:
            raise CommitRefused("the site is no member any more")
        self.manifest_of(commit)
        return commit

    def _forget_chunks(self, commit: Commit, me: int | None) -> None:
        """Delete what is remembered of chunks, if the commit gives this site other examples."""
        stays: str | None = None
        if not (self.store.folder / chunk_memory.FOLDER).exists():
            return
        if me is not None:
            with contextlib.suppress(FedcommonsError):  # the data changed: nothing of it stays
                stays = chunk_memory.key_of(commit, me, self.holdings(commit))
        chunk_memory.clear(self.store.folder, but=stays)

    def record_of(self, digest: bytes) -> bytes:
        """The record of the commit that the site is under, if this is its digest."""
        current, record = self.store.commit_record()
        if current != digest:
            raise CommitUnknown("the site is not under the commit that the message names")
        return record

    def _keys_of(self, after: int, up_to: int) -> list[bytes]:
        """The public keys that this site offered for the epochs in (after, up_to]."""
        epochs = [
            decoded_epoch(record)
            for _, record in self.store.epochs.between(after, up_to).values()
            if record
        ]
        return [
            bytes.fromhex(offer.key)
            for epoch in epochs
            for offer in epoch.sites
            if offer.identity == self.identity_in(epoch.sites).name
        ]

    def _later_keys(self, identities: Set[str], commit: Commit) -> set[str]:
        """The keys that members of a commit have in later epochs: they may have replaced theirs."""
        names = {member.site for member in commit.members if member.identity in identities}
        later = self.store.epochs.between(commit.number, LARGEST).values()
        return {
            offer.identity
            for _, record in later
            if record and names
            for offer in decoded_epoch(record).sites
            if offer.site in names
        }

    def note_receipts(self, commit: Commit, receipts: Sequence[Receipt]) -> None:
        """Keep the validly signed receipts for what this site sent; ignore others."""
        members = {member.identity for member in commit.members}
        own = self.identity_in(commit.members).name
        good = [
            (r.recipient, r.examples, r.signature)
            for r in receipts
            if r.sender == own
            and r.recipient in members
            and r.is_signed_under(bytes.fromhex(commit.epoch))
        ]
        self.store.ledger.note_receipts(commit.number, good)

    def withdrawn_since(self, commit: Commit) -> Withdrawn | None:
        """What was withdrawn since the rows were numbered for the commit's epoch, signed.

        None if the commit says it already, by this site's own word.
        """
        me = self.place(commit)
        self.store.withdrawals.check_remembered(commit, me)
        withdrawn = self.store.withdrawals.since(self.manifest_of(commit))
        listed = listed_in(commit, me)
        is_known = (withdrawn.numbers, withdrawn.n_private) == (listed.numbers, listed.n_private)
        if is_known and is_owners_word(commit, me):
            return None
        return withdrawn.signed(self.identity_in(commit.members), commit)

    def withdrawn_by_now(self) -> Withdrawn | None:
        """All that was withdrawn of the exchange that the site is under, signed; None if nothing.

        Its commit may list it without a signature: one from before owners signed.
        """
        record = self.store.commit_record()[1]
        commit = decoded_commit(record) if record else None
        identity = self.identity_in(commit.members) if commit else None
        me = commit.index(identity.name) if commit and identity else None
        if commit is None or identity is None or me is None:
            return None
        manifest = self.store.manifests.find(bytes.fromhex(commit.members[me].manifest))
        if manifest is None:
            return None
        found = self.store.withdrawals.since(manifest.for_place(commit, me))
        return found.signed(identity, commit) if found.numbers or found.n_private else None

    def place(self, commit: Commit) -> int:
        """This site's place in the roster of a commit; refused if it has none."""
        me = commit.index(self.identity_in(commit.members).name)
        if me is None:
            raise CommitRefused("the site is no member")
        return me

    def manifest_of(self, commit: Commit) -> Manifest:
        """How this site's rows were numbered for a commit; raise if the data changed since."""
        me = self.place(commit)
        manifest = self.rows.checked(bytes.fromhex(commit.members[me].manifest))
        return manifest.for_place(commit, me)

    def would_train_with(self, newcomers: Mapping[str, str]) -> list[str]:
        """Those of the newcomers, keys by name, that this site would be under a commit with."""
        found = []
        for name, identity in newcomers.items():
            with contextlib.suppress(Refusal):
                self.check_peers({self.name: self.identity_name, name: identity}, taking_part=True)
                found.append(name)
        return found

    def holdings(self, commit: Commit) -> Holdings:
        """What this site holds under its commit."""
        if self._holdings is None or self._holdings[0] != commit.digest:
            me, manifest = self.place(commit), self.manifest_of(commit)
            own = manifest.share_numbers[self.rows.trained_on(manifest)]
            self._check_own(commit, me, own)
            self._holdings = (commit.digest, holdings_of(commit, me, own))
        return self._holdings[1]

    @staticmethod
    def _check_own(commit: Commit, me: int, own: IntArray) -> None:
        """Refuse a commit that does not know of all withdrawals of this site.

        The operator may withdraw at any moment.
        """
        member = commit.members[me]
        stays = np.ones(member.n_shareable, np.bool_)
        stays[list(commit.withdrawn[me])] = False
        n_private = member.n_private - commit.withdrawn_private[me]
        if not np.array_equal(own[own >= 0], np.flatnonzero(stays)) or (own < 0).sum() != n_private:
            raise CommitRefused("the commit does not list the examples that this site has")

    def received_examples(
        self, commit: Commit, sender: int
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Inputs and labels of what came from a sender and is still held."""
        none = np.empty(0, np.int64)
        nothing = SharedExamples(none, self.data.y[none], self.data.x.take(none))
        identity = commit.members[sender].identity
        parts = [nothing, *self.store.received.chunks(bytes.fromhex(commit.epoch), identity)]
        numbers = np.concatenate([part.numbers for part in parts])
        if not np.array_equal(numbers, dict(self.holdings(commit).senders)[sender]):
            raise StoreError(f"store {self.store.folder} lacks examples that the commit names")
        return np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts])
