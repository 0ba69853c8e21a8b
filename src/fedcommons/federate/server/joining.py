"""Sites that come after the exchange: they train with the others at once.

A newcomer is taken in by the next commit of the same epoch, with all its examples as private; it
shares what it may with the next exchange. Who trains with it must trust its key: the members are
asked, with their next training message, and one that refuses keeps it waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcommons import shown
from fedcommons.federate.protocol.commit_fields import Member
from fedcommons.federate.protocol.example_schema import misfit, usual
from fedcommons.federate.protocol.records import Offer
from fedcommons.federate.server.claims import held_back
from fedcommons.federate.server.federation import ServerFederation

logger = shown.logger(__name__)


class Newcomers:
    """The sites that wait to be taken in, and what the members say of them."""

    def __init__(self, federation: ServerFederation) -> None:
        self.federation = federation
        self._waiting: list[Offer] = []
        self._answers: dict[str, dict[int, bool]] = {}  # by identity: which members would, by place
        self._said: set[tuple[str, tuple[int, ...]]] = set()

    def look(self) -> dict[str, Any]:
        """See who waits now; what training messages ask of them, nothing if nobody does."""
        self._waiting = waiting_sites(self.federation)
        if not self._waiting:
            return {}
        return {
            "newcomers": [offer.site for offer in self._waiting],
            "newcomer-keys": [offer.identity for offer in self._waiting],
        }

    def hear(self, place: int, fields: Mapping[str, Any]) -> None:
        """Note which newcomers the member at this place would train with."""
        welcome = fields.get("welcome", ())
        for offer in self._waiting:
            self._answers.setdefault(offer.identity, {})[place] = offer.site in welcome

    def take_in(self) -> bool:
        """Commit anew with those whom all members that were heard accept; whether there are any."""
        accepted = []
        for offer in self._waiting:
            answers = self._answers.get(offer.identity, {})
            against = tuple(place for place, yes in answers.items() if not yes)
            if answers and not against:
                accepted.append(offer)
            elif against:
                self._say_who_refuses(offer, against)
        if not accepted:
            return False
        self._answers.clear()
        self._waiting = []
        federation = self.federation
        federation.record(federation.commit.with_newcomers([_member(one) for one in accepted]))
        commit = federation.commit
        for offer in accepted:
            logger.info(
                "%s joined with %d examples: commit %s, %d in all; it shares with the next "
                "exchange (reshare = true)",
                *(offer.site, offer.n_examples, commit.order, commit.n_examples),
            )
        return True

    def _say_who_refuses(self, offer: Offer, against: tuple[int, ...]) -> None:
        if (offer.identity, against) not in self._said:
            self._said.add((offer.identity, against))
            names = ", ".join(self.federation.commit.members[place].site for place in against)
            logger.warning(
                "%s waits: its key is not among the peers of %s; they must pin it before it can "
                "take part",
                *(offer.site, names),
            )


def waiting_sites(federation: ServerFederation) -> list[Offer]:
    """The connected sites that could be taken in, by name."""
    commit, meeting = federation.commit, federation.meeting
    names = {member.site for member in commit.members}
    quarantine = federation.quarantine
    known = {member.identity for member in commit.members}
    offers = [
        offer
        for identity in meeting.here
        if identity not in known
        and identity not in quarantine
        and (offer := meeting.offers[identity].checked()).site not in names
        and offer.site not in federation.leaving
        and offer.n_examples
        and not misfit(offer, *layout_of(federation))
    ]
    offers.sort(key=lambda offer: offer.site)
    excessive = held_back(offers, None, quarantine, federation.most_examples)
    for offer in offers:
        if offer.identity in excessive:
            quarantine.put(offer.identity, offer.site, excessive[offer.identity])
    offers = [offer for offer in offers if offer.identity not in excessive]
    names_here = [offer.site for offer in offers]
    return [offer for offer in offers if names_here.count(offer.site) == 1]


def layout_of(federation: ServerFederation) -> tuple[str, str]:
    """The layout and columns of the committed exchange, or of the members that are there."""
    exchange, meeting = federation.committed_exchange, federation.meeting
    if exchange is not None:
        return usual(exchange.epoch.sites)
    members = {member.identity for member in federation.commit.members_present}
    there: Sequence[Offer] = [meeting.offers[i].checked() for i in meeting.here if i in members]
    return usual(there)


def _member(offer: Offer) -> Member:
    return Member(offer.site, offer.identity, offer.n_examples, 0, offer.manifest)
