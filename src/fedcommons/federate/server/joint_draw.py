"""The server's part in the draw of an exchange: it collects what the sites reveal.

It cannot choose the seed. A site that does not reveal is left out, and the others draw anew, with
fresh values: what was revealed for one roster counts for no other.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.server import advice
from fedcommons.federate.server.delivery import Delivery
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.link import Link
from fedcommons.federate.server.state import Exchange

logger = shown.logger(__name__)

MOST_DRAWS = 3  # sites allow for as many by default


def draw(
    federation: ServerFederation,
    link: Link,
    propose: Callable[[Set[str]], Epoch],
    ask_for_offers: Callable[[Set[str]], None],
    *,
    seconds: float,
) -> Epoch:
    """An epoch with the seed that its sites have drawn together.

    Args:
        propose: makes a proposal among the sites that are there, without these (by identity).
        ask_for_offers: has all sites but these offer anew.
        seconds: how long a site may take to reveal its value.
    """
    without: set[str] = set()
    for _ in range(MOST_DRAWS):
        proposal = propose(without)
        found = Delivery(
            link, federation.meeting, federation.state, Exchange(proposal, ()), seconds=seconds
        )
        values = found.values()
        if len(values) == len(proposal.sites):
            return replace(proposal, values=tuple(values[place] for place in sorted(values)))
        silent = {place: proposal.sites[place] for place in found.lost}
        without |= {site.identity for site in silent.values()}
        why = {site.site: found.lost[place] for place, site in silent.items()}
        logger.warning("the draw is made anew without %s", why)
        if len(proposal.sites) - len(silent) < 2:
            break
        ask_for_offers(without)
    raise FederationError(
        f"epoch {proposal.number} could not be drawn, because sites did not reveal their part: "
        f"{why}{advice.about(why.values())}"
    )
