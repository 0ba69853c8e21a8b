"""Sites that are connected and have no part in the commit."""

from __future__ import annotations

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.example_schema import misfit
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.joining import layout_of

logger = shown.logger(__name__)


def point_out_strangers(federation: ServerFederation) -> None:
    """Log which connected sites have no part in the commit, and why.

    It is an error if that is all of them: the state-dir is not theirs.
    """
    commit, meeting = federation.commit, federation.meeting
    members = {member.site: member.identity for member in commit.members}
    if not set(members.values()) & (set(meeting.here) | meeting.withdrew):
        raise FederationError(
            f"none of the sites that are there took part in the exchange of epoch "
            f"{commit.number}, which {federation.state.folder} holds: set another state-dir, "
            "or reshare = true for a new exchange"
        )
    name_of = {identity: site for site, identity in members.items()}
    for identity in meeting.here:
        offer = meeting.offers[identity].checked()
        site = offer.site
        if name_of.get(identity, site) != site:
            logger.warning(
                "%s is %s in the exchange: give it that name again, or it is refused",
                site,
                name_of[identity],
            )
        elif site not in members and (why := misfit(offer, *layout_of(federation))):
            logger.warning("%s has no part in the exchange: %s", site, why)
        elif site not in members:
            logger.info("%s came after the exchange: it can train from the next round on", site)
        elif members[site] != identity:
            logger.warning("%s has another key than in the exchange: has it lost its store?", site)
