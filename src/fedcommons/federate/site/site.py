"""A site's side of the federation: what it offers, sends, accepts and comes under.

Nothing here knows of Flower: records and bytes go in and out. Whatever is not right is refused.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.errors import StoreError
from fedcommons.federate.protocol import chunks
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.example_schema import misfit
from fedcommons.federate.protocol.packing import Examples
from fedcommons.federate.protocol.receipts import Receipt, n_assigned, receipt_content
from fedcommons.federate.protocol.records import Epoch, Offer, SignedOffer
from fedcommons.federate.protocol.refusals import (
    CommitRefused,
    EnvelopeRefused,
    EpochRefused,
    LayoutRefused,
    PeersNotPinned,
    Refusal,
    RosterRefused,
    SiteWithdrew,
    WrongFederation,
)
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.site.holdings import Held, held_by
from fedcommons.federate.site.manifest import Manifest
from fedcommons.federate.site.numbering import OwnRows
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.store import Store

logger = logging.getLogger(__name__)


class Site:
    """One site: its store, its data, its name, and the keys of its peers.

    `peers` maps a site's name to its public key; None trusts the key that a name has when it is
    first seen, and that key alone from then on.
    """

    def __init__(
        self, store: Store, data: SiteData, name: str, peers: Mapping[str, str] | None
    ) -> None:
        self.store, self.data, self.name, self.peers = store, data, name, peers
        self.rows = OwnRows(store, data)
        self._held: tuple[bytes, Held] | None = None

    @cached_property
    def identity_name(self) -> str:
        return self.store.identity.name

    # Offer

    def offer(
        self, federation: str, *, node_id: int, run_id: int, with_key: bool, committed: bytes = b""
    ) -> SignedOffer:
        """Say who this is and how much there is; with a fresh key if an exchange may follow.

        `committed` is the server's commit, which must not know of more withdrawals than this store:
        what is numbered anew would bring them back.
        """
        self._check_federation(federation)
        self._check_taking_part()
        self.store.join(federation)
        if with_key or self.store.manifest() is None:
            self._check_withdrawals(committed)
            self.rows.number()
        manifest = self.rows.manifest()
        return Offer(
            federation=federation,
            site=self.name,
            identity=self.identity_name,
            node_id=node_id,
            run_id=run_id,
            key=self.store.fresh_key().hex() if with_key else "",
            n_examples=len(manifest.rows),
            n_shareable=len(manifest.share_rows),
            row_bytes=self.data.row_bytes,
            layout=self.data.layout,
            columns=self.data.columns,
            manifest=manifest.digest.hex(),
            highest_epoch=self.store.highest_epoch()[0],
            commit=self.store.commit_record()[0].hex(),
        ).signed(self.store.identity)

    def _check_taking_part(self) -> None:
        if self.store.withdrew_all:
            raise SiteWithdrew("the operator of this site withdrew everything")

    def _check_federation(self, federation: str) -> None:
        if self.store.federation not in (None, federation):
            raise WrongFederation("the site's store belongs to another federation")

    # Send and receive

    def _enter(self, record: bytes) -> Epoch:
        """Check an epoch's record and take part in it."""
        epoch = _decoded_epoch(record)
        self._check_taking_part()
        self._check_federation(epoch.federation)
        self._check_peers({site.site: site.identity for site in epoch.sites}, taking_part=True)
        mine = epoch.sites[epoch.index(self.identity_name)]
        number, digest = self.store.highest_epoch()
        committed = self.store.commit_record()[1]
        if epoch.number < number or (epoch.number == number and epoch.digest != digest):
            raise EpochRefused("the epoch does not increase")
        if committed and _decoded_commit(committed).number >= epoch.number:
            raise EpochRefused("the epoch is committed already")
        self.rows.checked(bytes.fromhex(mine.manifest))
        for site in epoch.sites:
            if why := misfit(site, self.data.layout, self.data.columns):
                raise LayoutRefused(f"site {site.site}: {why}")
        if self.store.private_key(bytes.fromhex(mine.key)) is None:
            raise EpochRefused("the site never offered this key, or destroyed it")
        if epoch.number > number:
            peers = {site.site: site.identity for site in epoch.sites if site is not mine}
            self.store.enter_epoch(epoch.number, epoch.record, peers)
        return epoch

    def _check_peers(self, sites: Mapping[str, str], *, taking_part: bool) -> None:
        """Every site must have the key that is pinned for its name.

        Where this site takes no part, it shares nothing either: names that it does not know are
        no matter.
        """
        if taking_part and sites.get(self.name) != self.identity_name:
            raise RosterRefused("the roster does not have this site under its own key")
        known = self.store.trusted_peers() if self.peers is None else self.peers
        for site, identity in sites.items():
            if site == self.name:
                continue
            expected = known.get(site)
            if expected is None and taking_part and self.peers is not None:
                raise PeersNotPinned(f"no key is pinned for site {site}")
            if expected not in (None, identity):
                raise RosterRefused(f"site {site} has another key than the one pinned for it")

    def send(
        self, record: bytes, recipients: Sequence[int], chunk: int
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Envelopes of one chunk for these recipients, by place in the roster, and n_chunks."""
        epoch = self._enter(record)
        me = epoch.index(self.identity_name)
        mine = epoch.sites[me]
        shareable = self.rows.shareable(self.rows.checked(bytes.fromhex(mine.manifest)))
        total = chunks.n_chunks(mine, epoch.copies)
        if not 0 <= chunk < total:
            return [], total
        covered = chunks.share_numbers(mine, epoch.copies, chunk)
        numbers = np.arange(covered.start, covered.stop)
        examples = shareable.take(numbers)
        places = epoch.draw.recipients_of(me, numbers)
        envelopes, sent = [], []
        for recipient in sorted(set(recipients)):
            theirs = examples.select((places == recipient).any(axis=1))
            if not len(theirs):
                continue
            to = epoch.sites[recipient]
            try:
                sealed = chunks.seal(theirs, epoch, self.store.identity, to, chunk, total)
            except EnvelopeRefused:  # the others get theirs
                logger.warning("site %s has a key that cannot be sealed to", to.site)
                continue
            envelopes.append((recipient, sealed))
            sent.append((to.identity, chunk, len(theirs), len(sealed)))
        self.store.note_sent(epoch.number, sent)
        return envelopes, total

    def receive(
        self, record: bytes, envelopes: Sequence[bytes]
    ) -> tuple[list[Receipt], dict[str, int]]:
        """Open, check and keep envelopes; receipts of complete senders, and refusals by kind."""
        epoch = self._enter(record)
        me = epoch.index(self.identity_name)
        key = self.store.private_key(bytes.fromhex(epoch.sites[me].key))
        if key is None:
            raise EpochRefused("the epoch's key is destroyed")
        senders = {bytes.fromhex(site.identity): i for i, site in enumerate(epoch.sites)}
        refused: dict[str, int] = {}
        accepted: dict[int, list[tuple[int, Examples, bytes]]] = {}
        for data in envelopes:
            try:
                sender, chunk, examples, packed = self._open(epoch, me, key, senders, data)
            except Refusal as refusal:
                kind = type(refusal).__name__
                refused[kind] = refused.get(kind, 0) + 1
                logger.warning("refused an envelope: %s", kind)
                continue
            accepted.setdefault(sender, []).append((chunk, examples, packed))
        for sender, parts in accepted.items():
            self.store.receive(epoch.number, epoch.digest, epoch.sites[sender].identity, parts)
        receipts = [r for s in sorted(accepted) if (r := self._receipt(epoch, me, s)) is not None]
        if receipts:  # both sides keep them
            given = [(r.sender, r.examples, r.signature) for r in receipts]
            self.store.note_receipts(epoch.number, given, "receipt given")
        return receipts, refused

    def _open(
        self, epoch: Epoch, me: int, key: bytes, senders: Mapping[bytes, int], data: bytes
    ) -> tuple[int, int, Examples, bytes]:
        """An envelope's sender, chunk and examples, if they are right and not here otherwise."""
        sender, chunk, examples, packed = chunks.unseal(
            data, epoch, me, key=key, senders=senders, own=self.data
        )
        known = self.store.received_digest(epoch.digest, epoch.sites[sender].identity, chunk)
        if known is not None and known != hashlib.sha256(packed).digest():
            raise EnvelopeRefused("the chunk is here already, with other content")
        return sender, chunk, examples, packed

    def _receipt(self, epoch: Epoch, me: int, sender: int) -> Receipt | None:
        name = epoch.sites[sender].identity
        n = n_assigned(epoch.draw, sender, me)
        if self.store.n_received(epoch.digest, name) != n:
            return None
        content = receipt_content(epoch.digest, name, self.identity_name, n)
        signature = self.store.identity.sign("receipt", content)
        return Receipt(name, self.identity_name, n, signature)

    # Commit

    def come_under(self, record: bytes, *, given_up: int = 0) -> Commit:
        """Come under a commit, or stay under it; refuse one that does not follow.

        Exchanges after it, up to the epoch `given_up`, will not be gone on with.
        """
        self._check_taking_part()
        commit = _decoded_commit(record)
        current_record = self.store.commit_record()[1]
        current = _decoded_commit(current_record) if current_record else None
        me = commit.index(self.identity_name)
        if record != current_record:
            self._check_federation(commit.federation)
            present = {m.site: m.identity for m in commit.members_present}
            self._check_peers(present, taking_part=me is not None)
            self._check_follows(commit, current)
            if me is not None:
                self._check_received(commit, me, current)
            # What others withdrew is deleted whatever became of this site's own data.
            self.store.apply(commit, me, _took_back(commit, current))
        self.store.give_up(commit.number, given_up, self._keys_of(commit.number, given_up))
        if me is None:
            raise CommitRefused("the site is no member any more")
        self.manifest_of(commit)
        return commit

    def _keys_of(self, after: int, up_to: int) -> list[bytes]:
        """The keys that this site offered for the epochs between."""
        epochs = [_decoded_epoch(record) for record in self.store.epochs_between(after, up_to)]
        return [
            bytes.fromhex(offer.key)
            for epoch in epochs
            for offer in epoch.sites
            if offer.identity == self.identity_name
        ]

    def _check_follows(self, commit: Commit, current: Commit | None) -> None:
        """Whether a commit can come after all that this site knows."""
        if current and commit.order <= current.order:
            raise CommitRefused("the commit is not newer than the one that the site is under")
        if current and commit.epoch == current.epoch:
            if not commit.may_follow(current):
                raise CommitRefused("the commit brings back what an earlier one took")
            return
        number, digest = self.store.highest_epoch()
        if commit.number < number:
            raise CommitRefused("the commit is of an epoch before the one the site took part in")
        if commit.number == number and bytes.fromhex(commit.epoch) != digest:
            raise CommitRefused("the commit is of another epoch than the one the site took part in")
        epoch = self.store.epoch_record(bytes.fromhex(commit.epoch))
        if epoch and Commit.of(_decoded_epoch(epoch), ()).facts != commit.facts:
            raise CommitRefused("the commit does not say what its epoch said")

    def _check_received(self, commit: Commit, me: int, current: Commit | None) -> None:
        same_epoch = current is not None and current.epoch == commit.epoch
        for sender, recipient in commit.pairs:
            if recipient != me:
                continue
            gone = current.withdrawn[sender] if same_epoch and current else ()
            was_mine = commit.draw.recipients_of(sender, np.array(gone, np.int64)) == me
            here = self.store.n_received(
                bytes.fromhex(commit.epoch), commit.members[sender].identity
            )
            if here != n_assigned(commit.draw, sender, me) - int(was_mine.sum()):
                raise CommitRefused("the site does not have all that the commit gives it")

    def note_receipts(self, commit: Commit, receipts: Sequence[Receipt]) -> None:
        """Keep the receipts for what this site sent; those that are not signed are left out."""
        members = {member.identity for member in commit.members}
        good = [
            (r.recipient, r.examples, r.signature)
            for r in receipts
            if r.sender == self.identity_name
            and r.recipient in members
            and r.is_signed_under(bytes.fromhex(commit.epoch))
        ]
        self.store.note_receipts(commit.number, good)

    def withdrawn_since(self, commit: Commit) -> Withdrawn:
        """What this site's operator withdrew of what the commit's epoch had."""
        self.rows.check_remembers(commit, self.place(commit))
        return self.rows.withdrawn(self.manifest_of(commit))

    def _check_withdrawals(self, committed: bytes) -> None:
        """The store knows of all that commits know that this site withdrew."""
        own = self.store.commit_record()[1]
        under = _decoded_commit(own) if own else None
        settled = under.number if under and under.index(self.identity_name) is not None else 0
        for record in dict.fromkeys((own, self.store.older_than, committed)):
            # What was withdrawn from an exchange before was looked at when the next was made.
            if record and (commit := _decoded_commit(record)).number >= settled:
                self.rows.check_remembers(commit, commit.index(self.identity_name))
        self.store.note_older_than(b"")

    def place(self, commit: Commit) -> int:
        """This site's place in the roster of a commit."""
        me = commit.index(self.identity_name)
        if me is None:
            raise CommitRefused("the site is no member")
        return me

    def manifest_of(self, commit: Commit) -> Manifest:
        """How this site's rows were numbered for a commit, if the data are still the same."""
        return self.rows.checked(bytes.fromhex(commit.members[self.place(commit)].manifest))

    def held(self, commit: Commit) -> Held:
        """What this site holds under the commit that it is under."""
        if self._held is None or self._held[0] != commit.digest:
            me, manifest = self.place(commit), self.manifest_of(commit)
            own = manifest.share_numbers[self.rows.trained_on(manifest)]
            self._check_own(commit, me, own)
            self._held = (commit.digest, held_by(commit, me, own))
        return self._held[1]

    @staticmethod
    def _check_own(commit: Commit, me: int, own: IntArray) -> None:
        """Whether the commit knows of all withdrawals: an operator may withdraw at any moment."""
        member = commit.members[me]
        stays = np.ones(member.n_shareable, np.bool_)
        stays[list(commit.withdrawn[me])] = False
        n_private = member.n_private - commit.withdrawn_private[me]
        if not np.array_equal(own[own >= 0], np.flatnonzero(stays)) or (own < 0).sum() != n_private:
            raise CommitRefused("the commit names other examples of this site than it has")

    def received_examples(self, commit: Commit, sender: int) -> tuple[npt.NDArray[Any], IntArray]:
        """All inputs and labels that came from a sender and are still held."""
        none = np.empty(0, np.int64)
        nothing = Examples(none, none, self.data.x.take(none))
        identity = commit.members[sender].identity
        parts = [nothing, *self.store.chunks(bytes.fromhex(commit.epoch), identity)]
        numbers = np.concatenate([part.numbers for part in parts])
        if not np.array_equal(numbers, dict(self.held(commit).senders)[sender]):
            raise StoreError(f"store {self.store.folder} does not have what the site holds")
        return np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts])


def _took_back(commit: Commit, current: Commit | None) -> set[str]:
    """Who took examples back, or left, since the commit that the site is under."""
    if current is None or current.epoch != commit.epoch:
        return set()
    return {
        member.identity
        for i, member in enumerate(commit.members)
        if commit.withdrawn[i] != current.withdrawn[i] or commit.present[i] != current.present[i]
    }


@lru_cache(maxsize=8)
def _decoded_epoch(record: bytes) -> Epoch:
    return Epoch.decode(record)


@lru_cache(maxsize=8)
def _decoded_commit(record: bytes) -> Commit:
    return Commit.decode(record)
