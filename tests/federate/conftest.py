"""Small federations of sites in this process: without Flower, and `tiny` with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedcommons.federate.protocol import receipt_tree
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.joint_draw import promise
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.receipts import Receipt
from fedcommons.federate.protocol.records import Epoch, Offer, SignedOffer
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.server.withdrawals import withdraw
from fedcommons.federate.site.following import Proof
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.policy import SIMULATED, Policy
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.store import Store

if TYPE_CHECKING:
    from tests.federate.tiny import Tiny

FEDERATION = "hospitals"
MakeSite = Callable[..., Site]


def example_data(seed: int, n: int = 12, n_shareable: int | None = None) -> SiteData:
    """n examples of 6 floats and a label; the first `n_shareable` may be shared, or every other."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    mask = np.arange(n) % 2 == 0 if n_shareable is None else np.arange(n) < n_shareable
    return SiteData.from_arrays(x, rng.integers(0, 3, size=n), mask)


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    """make_site("a"): a site with a store of its own; the same name opens the same store again.

    Unless a policy is given, nothing is forbidden.
    """
    stores = []

    def make(
        name: str, data: SiteData | None = None, peers: Any = None, policy: Policy = SIMULATED
    ) -> Site:
        store = Store(tmp_path / name, create=True)
        stores.append(store)
        return ToldSite(store, data or example_data(ord(name[0])), name, peers, policy)

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def three(make_site: MakeSite) -> list[Site]:
    return [make_site(name) for name in "abc"]


def epoch_of(sites: list[Site], *, number: int = 1, copies: int = 1, seed: int = 25) -> Epoch:
    """An epoch to which all these sites made a fresh offer, and which they drew.

    With this seed and one copy, each of a, b, c gives each of the others some of its six.
    """
    offers = [
        site.exchange.offer(FEDERATION, node_id=10 + i, run_id=1, with_key=True, seed=seed)
        for i, site in enumerate(sites)
    ]
    return drawn(sites, Epoch(FEDERATION, number, copies, tuple(offers)))


def drawn(sites: list[Site], proposal: Epoch) -> Epoch:
    """The epoch of a proposal among these sites; simulated ones reveal whatever they think of it.

    Nobody else's offers may be in it but those that `value_of` knows.
    """
    values = {}
    for site in sites:
        offer = next((o for o in proposal.sites if o.identity == site.identity_name), None)
        if offer is not None and site.is_simulated:
            with site.store.database.writing("store.drawn"):
                key = bytes.fromhex(offer.key)
                values[offer.identity] = site.store.keyring.reveal(key, proposal.digest)
        elif offer is not None:
            values[offer.identity] = site.exchange.reveal(proposal.record)
    everybody = tuple(values.get(o.identity, VALUE) for o in proposal.sites)
    return replace(proposal, values=everybody)


VALUE = bytes(32)  # what those reveal whom nobody operates


def made_up(offer: Offer, identity: Identity, **changes: Any) -> SignedOffer:
    """An offer of somebody who is no site, and reveals `VALUE`."""
    changes = {"identity": identity.name, "promise": promise(identity.name, VALUE), **changes}
    return replace(offer, **changes).signed(identity)


def sent_by(site: Site, epoch: Epoch, chunk: int = 0) -> dict[int, bytes]:
    """One chunk's envelopes by recipient."""
    envelopes, _ = site.exchange.send(epoch.record, range(len(epoch.sites)), chunk)
    return dict(envelopes)


class ToldSite(Site):
    """A site that is shown, with each commit of `exchange`, the receipts that it rests on."""

    def apply_commit(self, record: bytes, **options: Any) -> Commit:
        told = PROOFS.get((Commit.decode(record).receipts, self.identity_name), Proof())
        return super().apply_commit(record, **{"proof": told, **options})


PROOFS: dict[tuple[str, str], Proof] = {}  # by the root that a commit names, and identity


def committed_to(epoch: Epoch, receipts: list[Receipt], after: Commit | None = None) -> Commit:
    """The commit that rests on these receipts; from now on sites are shown them with it."""
    roster = [offer.identity for offer in epoch.sites]
    leaves = receipt_tree.leaves_of(epoch.digest, roster, receipts)
    root = receipt_tree.root_of(leaves).hex()
    for place, identity in enumerate(roster):
        own = [r for r in receipts if r.sender == identity]
        PROOFS[root, identity] = Proof(own, receipt_tree.path_of(leaves, place))
    pairs = sorted({(roster.index(r.sender), roster.index(r.recipient)) for r in receipts})
    return Commit.of(epoch, tuple(pairs), receipts=root, after=after)


def exchange(sites: list[Site], epoch: Epoch) -> Commit:
    """Deliver everything; the commit that follows, under which nobody is yet."""
    found: dict[tuple[str, str], Receipt] = {}
    for site in sites:
        _, n_chunks = site.exchange.send(epoch.record, [], 0)
        for chunk in range(n_chunks):
            for recipient, sealed in sent_by(site, epoch, chunk).items():
                receipts, refused = sites[recipient].exchange.receive(epoch.record, [sealed])
                assert not refused
                found |= {(r.sender, r.recipient): r for r in receipts}
    under = [record for site in sites if (record := site.store.commit_record()[1])]
    after = max(map(Commit.decode, under), key=lambda commit: commit.order, default=None)
    return committed_to(epoch, list(found.values()), after)


def withdrawn(
    sites: list[Site], commit: Commit, place: int, numbers: Sequence[int], n_private: int = 0
) -> Commit:
    """The next commit, in which a site has withdrawn these, as it signed."""
    identity = sites[place].identity_in(commit.members)
    said = Withdrawn(tuple(numbers), n_private).signed(identity, commit)
    return withdraw(commit, place, said)


@pytest.fixture
def committed(three: list[Site]) -> tuple[list[Site], Epoch, Commit]:
    """Three sites after an exchange with one copy of each, all under its commit."""
    epoch = epoch_of(three)
    commit = exchange(three, epoch)
    for site in three:
        site.apply_commit(commit.record)
    return three, epoch, commit


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.federate.tiny import be_impatient

    be_impatient(monkeypatch)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Tiny]:
    from tests.federate.tiny import Tiny

    found = Tiny(tmp_path)
    yield found
    found.close()
