"""A site as every message meets it: who it is, what it has, and whom it trusts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from fedcommons.federate.protocol.refusals import (
    PeersNotPinned,
    RosterRefused,
    SiteWithdrew,
    WrongFederation,
)
from fedcommons.federate.site.numbering import NumberedRows
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.policy import SIMULATED, Policy
from fedcommons.federate.site.store import Store


class Participant:
    """A site with its store, its data, its name and the keys of its peers.

    `peers` maps the name of each site to its public key. With None, the key under which a name is
    first seen is trusted, and from then on no other. `policy` is what its operator allows.
    """

    def __init__(
        self,
        store: Store,
        data: SiteData,
        name: str,
        peers: Mapping[str, str] | None,
        policy: Policy,
    ) -> None:
        self.store, self.data, self.name, self.peers = store, data, name, peers
        self.policy = policy
        self.rows = NumberedRows(store, data)

    @cached_property
    def identity_name(self) -> str:
        return self.store.identity.name

    @property
    def is_simulated(self) -> bool:
        """Whether nobody operates this site: what chance decides can be repeated by the seed."""
        return self.policy is SIMULATED

    def check_taking_part(self) -> None:
        if self.store.withdrawals.everything:
            raise SiteWithdrew("the operator of this site withdrew everything")

    def check_federation(self, federation: str) -> None:
        if self.store.federation not in (None, federation):
            raise WrongFederation("the site's store belongs to another federation")

    def check_peers(self, sites: Mapping[str, str], *, taking_part: bool) -> None:
        """Every site must have the key that is pinned for its name.

        If this site takes no part, it shares nothing, so names without a pinned key do not matter.
        """
        if taking_part and sites.get(self.name) != self.identity_name:
            raise RosterRefused("the roster does not list this site with its own key")
        known = self.store.keyring.trusted_peers() if self.peers is None else self.peers
        for site, identity in sites.items():
            if site == self.name:
                continue
            expected = known.get(site)
            if expected is None and taking_part and self.peers is not None:
                raise PeersNotPinned(f"no key is pinned for site {site}")
            if expected not in (None, identity):
                raise RosterRefused(f"site {site} does not have the key that is pinned for it")
