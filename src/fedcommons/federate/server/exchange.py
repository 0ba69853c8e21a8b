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
from fedcommons.federate.server.delivery import Delivery
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.link import Link
from fedcommons.federate.server.state import Exchange

logger = shown.logger(__name__)


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
        sites = _that_fit(_with_a_key(federation, leaving, without), copies)
        offers = {offer.site: offer.highest_epoch for offer, _ in sites}
        signed = tuple(signed for _, signed in sites)
        return Epoch(federation.name, _next_number(federation, offers), copies, signed)

    epoch = joint_draw.draw(federation, link, propose, ask_for_offers, seconds=seconds)
    exchange = federation.exchange = Exchange(epoch, ())
    federation.state.save_exchange(exchange, "server.epoch")
    return exchange


def _with_a_key(
    federation: ServerFederation, leaving: Sequence[str], without: Set[str]
) -> list[tuple[Offer, SignedOffer]]:
    """The offers that name a key to seal to, in the order of the sites' names."""
    here = [identity for identity in federation.meeting.here if identity not in without]
    signed = [federation.meeting.offers[identity] for identity in here]
    pairs = [(one.checked(), one) for one in signed]
    sites = [pair for pair in pairs if pair[0].key and pair[0].site not in leaving]
    sites.sort(key=lambda pair: pair[0].site)
    names = [offer.site for offer, _ in sites]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FederationError(f"each site must have a name of its own, got {twice} twice")
    return sites


def _that_fit(
    sites: list[tuple[Offer, SignedOffer]], copies: int
) -> list[tuple[Offer, SignedOffer]]:
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


def _next_number(federation: ServerFederation, claims: Mapping[str, int]) -> int:
    """An epoch above all that sites have seen; a claim far above the others' is refused."""
    commit, exchange = federation.commit_or_none, federation.exchange
    own = [commit.number] if commit else []
    own += [exchange.epoch.number] if exchange else []
    usual = max([*own, sorted(claims.values())[(len(claims) - 1) // 2]])
    for site, claim in claims.items():
        if claim > usual + MOST_AHEAD:
            raise FederationError(
                f"{site} says that it has seen epoch {claim}, the others {usual}: find out "
                "what happened to its store; the exchange can be made without it"
            )
    return max([*own, *claims.values()]) + 1


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
