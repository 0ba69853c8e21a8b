"""The exchange at a site: what it offers, sends and receives.

Nothing here knows of Flower: records and bytes go in and out. Whatever is not right is refused.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence

import numpy as np

from fedcommons import shown
from fedcommons.federate.protocol import chunks
from fedcommons.federate.protocol.example_schema import misfit
from fedcommons.federate.protocol.joint_draw import VALUE, promise, repeatable_value
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.protocol.receipts import Receipt, n_assigned, receipt_content
from fedcommons.federate.protocol.records import MOST_AHEAD, Epoch, Offer, SignedOffer
from fedcommons.federate.protocol.refusals import (
    DrawRefused,
    EnvelopeRefused,
    EpochRefused,
    LayoutRefused,
    Refusal,
)
from fedcommons.federate.site.decoded import decoded_commit, decoded_epoch
from fedcommons.federate.site.given import (
    check_approved,
    check_draws,
    check_roster,
    check_spread,
)
from fedcommons.federate.site.grounds import Grounds, check_grounds
from fedcommons.federate.site.manifests import Manifest
from fedcommons.federate.site.participant import Participant

logger = shown.logger(__name__)


class Exchange:
    """One site's part in exchanges; all that it remembers is in the site's store."""

    def __init__(self, site: Participant) -> None:
        self.site, self._store, self._rows = site, site.store, site.rows

    def offer(
        self,
        federation: str,
        *,
        node_id: int,
        run_id: int,
        with_key: bool,
        committed: bytes = b"",
        seed: int | None = None,
    ) -> SignedOffer:
        """Say who this is and how much it has; with a fresh key if an exchange may follow.

        `committed` is the record of the server's commit. If it lists withdrawals that this store
        does not know, the offer is refused: numbering the rows anew would bring them back. By the
        `seed` a simulated site finds its part of the draw; a real one makes it up.
        """
        self.site.check_federation(federation)
        self.site.check_taking_part()
        self._store.join(federation)
        own = self._store.commit_record()[1]
        # A site that is under no commit may be taken in with what it has now.
        if with_key or not own or self._store.manifests.newest() is None:
            names = [identity.name for identity in self._store.keyring.identities]
            self._store.withdrawals.check_all_remembered(own, committed, names)
            self._rows.number()
        manifest, value = self._rows.newest(), secrets.token_bytes(VALUE)
        if with_key:
            self._grounds(manifest)
        if self.site.is_simulated and seed is not None:
            value = repeatable_value(seed, self.site.name)
        # A new exchange is made under the newest key, and what was begun is gone on with.
        identity = self._store.identity if with_key else self.site.begun_as
        return Offer(
            federation=federation,
            site=self.site.name,
            identity=identity.name,
            node_id=node_id,
            run_id=run_id,
            key=self._store.keyring.fresh_key(value).hex() if with_key else "",
            promise=promise(identity.name, value) if with_key else "",
            n_examples=len(manifest.rows),
            n_shareable=len(manifest.share_rows),
            row_bytes=self.site.data.form.row_bytes,
            layout=self.site.data.layout,
            columns=self.site.data.columns,
            manifest=manifest.digest.hex(),
            highest_epoch=self._store.epochs.highest()[0],
            commit=self._store.commit_record()[0].hex(),
        ).signed(identity)

    def reveal(self, record: bytes) -> bytes:
        """The value that this site promised for the draw, once it knows who takes part in it.

        It is for this proposal alone: nobody can draw among others, or with another d, with it.
        """
        proposal = decoded_epoch(record)
        if proposal.values:
            raise DrawRefused("the draw is over")
        me, _ = self._checked(proposal)
        key = bytes.fromhex(proposal.sites[me].key)
        with self._store.database.writing("store.drawn"):
            if not self._store.keyring.revealed_for(key):
                if proposal.number <= self._store.epochs.highest()[0]:
                    raise EpochRefused("the site has seen an epoch of this number")
                check_approved(self.site.policy, self._store.given, proposal.number)
                check_draws(self.site.policy, self._store.given)
                self._store.given.note_draw()
            return self._store.keyring.reveal(key, proposal.digest)

    def _enter(self, record: bytes) -> Epoch:
        """Check the record of an epoch and take part in it."""
        epoch = decoded_epoch(record)
        me, manifest = self._checked(epoch)
        mine, (number, digest) = epoch.sites[me], self._store.epochs.highest()
        if epoch.number == number and epoch.digest != digest:
            raise EpochRefused("the site has seen another epoch of this number")
        revealed = self._store.keyring.revealed_for(bytes.fromhex(mine.key))
        if not epoch.values or revealed != epoch.proposal.digest:
            raise DrawRefused("the epoch is not the one that this site revealed its value for")
        if epoch.number > number:
            peers = {site.site: site.identity for site in epoch.sites if site is not mine}
            prints = manifest.fingerprints[manifest.share_rows]
            check_approved(self.site.policy, self._store.given, epoch.number)
            check_spread(self.site.policy, self._store.given, epoch, me, prints)
            self._store.enter(epoch, me, peers, manifest, self._grounds(manifest))
        return epoch

    def _grounds(self, manifest: Manifest) -> Grounds:
        """On what ground each row may leave; refused if the policy wants more."""
        grounds = self.site.data.grounds(manifest.share_rows)
        check_grounds(self.site.policy.require_ground, grounds, manifest.share_rows)
        return grounds

    def _checked(self, epoch: Epoch) -> tuple[int, Manifest]:
        """This site's place in an epoch or a proposal, and how it numbered its rows for it.

        Refused unless this site may exchange with these sites, now.
        """
        self.site.check_taking_part()
        self.site.check_federation(epoch.federation)
        peers = {site.site: site.identity for site in epoch.sites}
        self.site.check_peers(peers, taking_part=True, epoch=epoch.digest)
        me = epoch.index(self.site.identity_in(epoch.sites).name)
        mine, number = epoch.sites[me], self._store.epochs.highest()[0]
        committed = self._store.commit_record()[1]
        if not number <= epoch.number <= number + MOST_AHEAD:
            raise EpochRefused("the site has seen a later epoch, or one that is far earlier")
        if committed and decoded_commit(committed).number >= epoch.number:
            raise EpochRefused("the site is under a commit of this epoch or a later one")
        check_roster(self.site.policy, epoch)
        manifest = self._rows.checked(bytes.fromhex(mine.manifest))
        self._grounds(manifest)
        for site in epoch.sites:
            if why := misfit(site, self.site.data.layout, self.site.data.columns):
                raise LayoutRefused(f"site {site.site}: {why}")
        if self._store.keyring.private_key(bytes.fromhex(mine.key)) is None:
            raise EpochRefused("the site never offered this key, or destroyed it")
        return me, manifest

    def send(
        self, record: bytes, recipients: Sequence[int], chunk: int
    ) -> tuple[list[tuple[int, bytes]], int]:
        """One chunk's envelopes for these recipients, and how many chunks there are.

        Recipients are places in the roster.
        """
        epoch = self._enter(record)
        identity = self.site.identity_in(epoch.sites)
        me = epoch.index(identity.name)
        mine = epoch.sites[me]
        shareable = self._rows.shareable(self._rows.checked(bytes.fromhex(mine.manifest)))
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
                sealed = chunks.seal(theirs, epoch, identity, to, chunk, total)
            except EnvelopeRefused:  # the others get theirs
                logger.warning(
                    "the key of site %s cannot be used for sealing: nothing is sent to it", to.site
                )
                continue
            envelopes.append((recipient, sealed))
            sent.append((to.identity, chunk, len(theirs), len(sealed)))
        self._store.ledger.note_sent(epoch.number, sent)
        return envelopes, total

    def receive(
        self, record: bytes, envelopes: Sequence[bytes]
    ) -> tuple[list[Receipt], dict[str, int]]:
        """Open, check and keep envelopes.

        Returns a receipt for each sender that is complete now, and how many envelopes were refused
        for which reason.
        """
        epoch = self._enter(record)
        me = epoch.index(self.site.identity_in(epoch.sites).name)
        key = self._store.keyring.private_key(bytes.fromhex(epoch.sites[me].key))
        if key is None:
            raise EpochRefused("the epoch's key is destroyed")
        senders = {bytes.fromhex(site.identity): i for i, site in enumerate(epoch.sites)}
        refused: dict[str, int] = {}
        accepted: dict[int, list[tuple[int, SharedExamples, bytes]]] = {}
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
            self._store.receive(epoch.number, epoch.digest, epoch.sites[sender].identity, parts)
        receipts = [r for s in sorted(accepted) if (r := self._receipt(epoch, me, s)) is not None]
        if receipts:  # both sides keep them
            given = [(r.sender, r.examples, r.signature) for r in receipts]
            self._store.ledger.note_receipts(epoch.number, given, "receipt given")
        return receipts, refused

    def _open(
        self, epoch: Epoch, me: int, key: bytes, senders: Mapping[bytes, int], data: bytes
    ) -> tuple[int, int, SharedExamples, bytes]:
        """An envelope's sender, chunk number, examples and their bytes, or a refusal."""
        sender, chunk, examples, packed = chunks.unseal(
            data, epoch, me, key=key, senders=senders, form=self.site.data.form
        )
        name = epoch.sites[sender].identity
        known = self._store.received.original_digest(epoch.digest, name, chunk)
        if known is not None and known != hashlib.sha256(packed).digest():
            raise EnvelopeRefused("the chunk was received before with other content")
        return sender, chunk, examples, packed

    def _receipt(self, epoch: Epoch, me: int, sender: int) -> Receipt | None:
        name = epoch.sites[sender].identity
        n = n_assigned(epoch.draw, sender, me)
        if self._store.received.n_examples(epoch.digest, name) != n:
            return None
        own = self.site.identity_in(epoch.sites)
        content = receipt_content(epoch.digest, name, own.name, n)
        return Receipt(name, own.name, n, own.sign("receipt", content))
