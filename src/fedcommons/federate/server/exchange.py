"""A new epoch: who takes part in it, under which number, and the commit that comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import receipt_tree
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.example_schema import misfit, usual
from fedcommons.federate.protocol.records import MOST_AHEAD, Epoch, Offer, SignedOffer
from fedcommons.federate.server import advice, joint_draw
from fedcommons.federate.server.claims import held_back
from fedcommons.federate.server.delivery import Delivery
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.link import Link
from fedcommons.federate.server.quarantine import Offence
from fedcommons.federate.server.state import Exchange

logger = shown.logger(__name__)

Candidate = tuple[Offer, SignedOffer]


def begin(
    federation: ServerFederation,
    link: Link,
    copies: int,
    ask_for_offers: Callable[[Set[str]], None],
    leaving: Sequence[str] = (),
    *,
    seconds: float,
) -> Exchange:
    """A new epoch with the sites that are there, on the disk before anybody takes part in it.

    Those that are `leaving`, by name, have no part in it, nor those that do not help to draw it:
    then the others are asked for fresh offers.
    """

    def propose(without: Set[str]) -> Epoch:
        sites = _with_a_key(federation, leaving, without)
        sites = _but_offenders(federation, sites, _of_another_name(federation, sites))
        sites = _but_offenders(federation, sites, _of_wild_epochs(federation, sites))
        claims = held_back(
            [offer for offer, _ in sites],
            federation.commit_or_none,
            federation.quarantine,
            federation.most_examples,
        )
        sites = _that_fit(_but_offenders(federation, sites, claims), copies)
        number = max(_own_numbers(federation) + [offer.highest_epoch for offer, _ in sites]) + 1
        return Epoch(federation.name, number, copies, tuple(signed for _, signed in sites))

    epoch = joint_draw.draw(federation, link, propose, ask_for_offers, seconds=seconds)
    exchange = federation.exchange = Exchange(epoch, ())
    federation.state.save_exchange(exchange, "server.epoch")
    return exchange


def _with_a_key(
    federation: ServerFederation, leaving: Sequence[str], without: Set[str]
) -> list[Candidate]:
    """The offers that name a key to seal to, in the order of the sites' names."""
    here = [identity for identity in federation.meeting.here if identity not in without]
    signed = [federation.meeting.offers[identity] for identity in here]
    pairs = [(one.checked(), one) for one in signed]
    sites = [
        (offer, one)
        for offer, one in pairs
        if offer.key and offer.site not in leaving and offer.identity not in federation.quarantine
    ]
    sites.sort(key=lambda pair: (pair[0].site, pair[0].identity))
    return sites


def _but_offenders(
    federation: ServerFederation, sites: list[Candidate], offenders: Mapping[str, Offence]
) -> list[Candidate]:
    """Those that did nothing; the offenders, by identity, are quarantined."""
    for offer, _ in sites:
        if offer.identity in offenders:
            federation.quarantine.put(offer.identity, offer.site, offenders[offer.identity])
    return [(offer, signed) for offer, signed in sites if offer.identity not in offenders]


def _of_another_name(
    federation: ServerFederation, sites: Sequence[Candidate]
) -> dict[str, Offence]:
    """Who comes under the name of another site: with another key than the member of that name.

    Where nobody is known by that name yet, the server cannot say whose it is: the operator can.
    """
    commit = federation.commit_or_none
    member = {m.site: m.identity for m in commit.members_present} if commit else {}
    bearers: dict[str, list[str]] = {}
    for offer, _ in sites:
        bearers.setdefault(offer.site, []).append(offer.identity)
    return {
        identity: Offence(f"another site is called {site!r} as well")
        for site, identities in bearers.items()
        if len(identities) > 1
        for identity in identities
        if member.get(site) != identity
    }


def _that_fit(sites: list[Candidate], copies: int) -> list[Candidate]:
    """Those whose examples have the layout that most have; they must be enough for the copies."""
    layout = usual(offer for offer, _ in sites)
    unfit = {offer.site: why for offer, _ in sites if (why := misfit(offer, *layout))}
    for site, why in unfit.items():
        logger.warning("%s is left out of the exchange: %s", site, why)
    fit = [(offer, signed) for offer, signed in sites if offer.site not in unfit]
    if len(fit) < 2 or not 0 <= copies < len(fit):
        raise FederationError(
            f"copies must be in 0 to {len(fit) - 1} with {len(fit)} sites, of which two are "
            f"needed, got {copies}; left out were {unfit or 'none'}"
        )
    return fit


def _own_numbers(federation: ServerFederation) -> list[int]:
    """Of the epochs that the server knows."""
    commit, exchange = federation.commit_or_none, federation.exchange
    found = [commit.number] if commit else []
    return found + ([exchange.epoch.number] if exchange else [])


def _of_wild_epochs(federation: ServerFederation, sites: Sequence[Candidate]) -> dict[str, Offence]:
    """Who says that it has seen far more epochs than the others: numbers would run out."""
    claims = sorted(offer.highest_epoch for offer, _ in sites)
    usual = max(_own_numbers(federation) + claims[: (len(claims) + 1) // 2][-1:], default=0)
    return {
        offer.identity: Offence(
            f"it says that it has seen epoch {offer.highest_epoch}, the others {usual}: find out "
            "what happened to its store"
        )
        for offer, _ in sites
        if offer.highest_epoch > usual + MOST_AHEAD
    }


def deliver(
    federation: ServerFederation, link: Link, exchange: Exchange, *, seconds: float
) -> None:
    """Route the envelopes of an exchange, and commit to the deliveries that have receipts."""
    start = time.monotonic()
    delivery = Delivery(link, federation.meeting, federation.state, exchange, seconds=seconds)
    federation.exchange = exchange = delivery.run()
    epoch = exchange.epoch
    if len(epoch.sites) - len(delivery.lost) < 2:
        why = {epoch.sites[place].site: reason for place, reason in delivery.lost.items()}
        raise FederationError(
            f"epoch {epoch.number} is not committed: two sites are needed for an exchange; "
            f"lost were {why}; reshare = true begins anew with the sites that are there"
            f"{advice.about(why.values())}"
        )
    place = {site.identity: i for i, site in enumerate(epoch.sites)}
    pairs = {(place[r.sender], place[r.recipient]) for r in exchange.receipts}
    leaves = receipt_tree.leaves_of(epoch.digest, list(place), exchange.receipts)
    root = receipt_tree.root_of(leaves).hex()
    before = federation.commit_or_none
    federation.record(Commit.of(epoch, tuple(sorted(pairs)), receipts=root, after=before))
    logger.info(
        "epoch %d committed: %d deliveries, %d examples, %.1f s",
        epoch.number,
        len(pairs),
        federation.commit.n_examples,
        time.monotonic() - start,
    )
