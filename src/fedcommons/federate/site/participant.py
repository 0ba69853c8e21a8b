"""A site as every message meets it: who it is, what it has, and whom it trusts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.records import OnRoster
from fedcommons.federate.protocol.refusals import (
    PeersNotPinned,
    RosterRefused,
    SiteWithdrew,
    WrongFederation,
)
from fedcommons.federate.site.decoded import decoded_commit, decoded_epoch
from fedcommons.federate.site.numbering import NumberedRows
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.policy import SIMULATED, Policy
from fedcommons.federate.site.store import Store


class Participant:
    """A site with its store, its data, its name and the keys of its peers.

    `peers` maps the name of each site to its public key. With None, the key under which a name is
    first seen is trusted, and from then on no other. `replaced` maps keys that were replaced to the
    names of their sites: they are good for what was begun under them, and for nothing else.
    `policy` is what the site's operator allows.
    """

    def __init__(
        self,
        store: Store,
        data: SiteData,
        name: str,
        peers: Mapping[str, str] | None,
        policy: Policy,
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        self.store, self.data, self.name, self.peers = store, data, name, peers
        self.policy, self._replaced = policy, replaced or {}
        self.rows = NumberedRows(store, data)

    @property
    def identity_name(self) -> str:
        return self.store.identity.name

    @property
    def is_simulated(self) -> bool:
        """Whether nobody operates this site: what chance decides can be repeated by the seed."""
        return self.policy is SIMULATED

    def identity_in(self, roster: Iterable[OnRoster]) -> Identity:
        """The identity under which this site is listed; if it is not, the one that it has now."""
        listed = {site.identity for site in roster}
        own = self.store.keyring.identities
        return next((one for one in reversed(own) if one.name in listed), own[-1])

    @property
    def begun_as(self) -> Identity:
        """The identity of the commit that the site is under, or of the exchange that led to none.

        What was begun is gone on with under the key that it lists.
        """
        if record := self.store.commit_record()[1]:
            return self.identity_in(decoded_commit(record).members)
        record = self.store.epochs.record(self.store.epochs.highest()[1])
        return self.identity_in(decoded_epoch(record).sites if record else ())

    def check_taking_part(self) -> None:
        if self.store.withdrawals.everything:
            raise SiteWithdrew("the operator of this site withdrew everything")

    def check_federation(self, federation: str) -> None:
        if self.store.federation not in (None, federation):
            raise WrongFederation("the site's store belongs to another federation")

    def check_peers(
        self, sites: Mapping[str, str], *, taking_part: bool, epoch: bytes = b""
    ) -> None:
        """Every site must have the key that is pinned for its name.

        If this site takes no part, it shares nothing, so names without a pinned key do not matter.
        A key that was replaced is good for an `epoch`, by its digest, that the site knows already.
        """
        own = [identity.name for identity in self.store.keyring.identities]
        has_begun = self._has_begun(epoch)
        if taking_part and sites.get(self.name) not in (own if has_begun else own[-1:]):
            raise RosterRefused("the roster does not list this site with its own key")
        if self.peers is None:
            known, replaced = (
                self.store.keyring.trusted_peers(),
                self.store.keyring.replaced_peers(),
            )
        else:
            known, replaced = dict(self.peers), dict(self._replaced)
        for site, identity in sites.items():
            if site == self.name:
                continue
            expected = known.get(site)
            if expected is None and taking_part and self.peers is not None:
                raise PeersNotPinned(f"no key is pinned for site {site}")
            if has_begun and replaced.get(identity) == site:
                continue
            if expected not in (None, identity):
                raise RosterRefused(f"site {site} does not have the key that is pinned for it")

    def _has_begun(self, epoch: bytes) -> bool:
        """Whether the site has taken part in an epoch, or is under a commit of it."""
        record = self.store.commit_record()[1]
        return bool(self.store.epochs.record(epoch)) or (
            bool(record) and bytes.fromhex(decoded_commit(record).epoch) == epoch
        )
