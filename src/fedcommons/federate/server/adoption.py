"""Adopting a commit that sites report and the server lost, or never had.

Nobody signs a commit. So a single store from elsewhere must not be able to replace a federation's
commit, nor to throw out sites that are connected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.records import MOST_AHEAD
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.quarantine import Offence

logger = shown.logger(__name__)


def adopt(federation: ServerFederation, leaving: Sequence[str], *, needed: bool) -> None:
    """Adopt the newest commit that sites report, if it is later than the server's and believable.

    Where a new exchange follows, no commit is `needed`, and nothing is an error.
    """
    own, reported = federation.commit_or_none, _believed(federation)
    newest = newest_of(reported)
    pending = federation.unfinished.epoch.number if federation.unfinished else 0
    # An exchange that is later than what sites report can be gone on with.
    known = own.order if own else (pending, 0)
    if newest is None or newest.order <= known:
        return
    there = _witnesses(federation, leaving)
    if own is None:
        try:
            check_believable(newest, there)
        except FederationError as error:
            if needed:
                raise
            logger.warning("%s", error)
            return
        _give_up_what_was_lost(federation, newest, there.seen)
    else:
        here = set(federation.meeting.here)
        while newest is not None and not is_later(newest, own, reported, here):
            by = {identity for identity, commit in reported.items() if commit == newest}
            logger.warning(
                "commit %s, which %s report, is not adopted: it does not follow from the server's",
                newest.order,
                there.listed(by),
            )
            reported = {i: commit for i, commit in reported.items() if i not in by}
            newest = newest_of({i: c for i, c in reported.items() if c.order > own.order})
        if newest is None:
            return
    logger.warning("adopting commit %s, which sites report", newest.order)
    federation.record(newest)


def _witnesses(federation: ServerFederation, leaving: Sequence[str]) -> Witnesses:
    meeting = federation.meeting
    offers = {
        identity: offer.checked()
        for identity, offer in meeting.offers.items()
        if identity not in federation.quarantine
    }
    return Witnesses(
        names={identity: offer.site for identity, offer in offers.items()},
        reported={i: commit for i, commit in meeting.commits.items() if i in offers},
        seen={identity: offer.highest_epoch for identity, offer in offers.items()},
        withdrew=meeting.withdrew,
        leaving=set(leaving),
    )


def _give_up_what_was_lost(
    federation: ServerFederation, newest: Commit, seen: Mapping[str, int]
) -> None:
    """Give up exchanges after this commit that members took part in: the server lost them."""
    numbers = [n for identity, n in seen.items() if newest.index(identity) is not None]
    last = max((n for n in numbers if n <= newest.number + MOST_AHEAD), default=0)
    if last > newest.number:
        federation.give_up(last)


def _believed(federation: ServerFederation) -> dict[str, Commit]:
    """What sites report, by identity, but for those that are quarantined.

    Without a commit of the server's own, a few whose stores are of another federation of the same
    name are quarantined here: no member of what they report is among those that most are under.
    """
    quarantine, meeting = federation.quarantine, federation.meeting
    reported = {i: commit for i, commit in meeting.commits.items() if i not in quarantine}
    if federation.commit_or_none is not None:
        return reported
    for identity, commit in list(reported.items()):
        members = {member.identity for member in commit.members}
        strangers = set(reported) - members
        if 2 * len(strangers) > len(reported):
            site = meeting.offers[identity].checked().site
            quarantine.put(
                identity,
                site,
                Offence(
                    f"its store is under commit {commit.order} of another federation that is "
                    f"called {commit.federation!r}, too"
                ),
            )
            del reported[identity]
    return reported


def newest_of(reported: Mapping[str, Commit]) -> Commit | None:
    """The newest commit that sites, by identity, report."""
    return max(reported.values(), key=lambda commit: commit.order, default=None)


def is_later(newest: Commit, own: Commit, reported: Mapping[str, Commit], here: Set[str]) -> bool:
    """Whether a commit comes after the server's own: most members that are there must say so."""
    members = {member.identity for member in own.members_active} & here
    if newest.epoch == own.epoch:
        under = sum(reported.get(identity) == newest for identity in members)
        return 2 * under > len(members) and newest.may_follow(own)
    return 2 * sum(reported[i].epoch == newest.epoch for i in members & set(reported)) > len(
        members
    )


@dataclass(frozen=True, slots=True)
class Witnesses:
    """The sites that were heard, and what they say; by identity.

    Attributes:
        names: their names.
        reported: the commits that they say they have applied.
        seen: the highest epoch that each has taken part in.
        withdrew: those that withdrew everything.
        leaving: the names of sites that left for good, connected or not.
    """

    names: Mapping[str, str]
    reported: Mapping[str, Commit]
    seen: Mapping[str, int]
    withdrew: Set[str]
    leaving: Set[str]

    def listed(self, identities: Set[str]) -> str:
        return ", ".join(sorted(self.names[identity] for identity in identities))

    def excused(self, commit: Commit) -> set[str]:
        """Those that nobody misses."""
        members = {m.identity for m in commit.members if m.site in self.leaving}
        here = {identity for identity, site in self.names.items() if site in self.leaving}
        return members | here | set(self.withdrew)


def check_believable(newest: Commit, there: Witnesses) -> None:
    """Refuse to begin from a commit that the sites that are there do not bear out."""
    reported, listed = there.reported, there.listed
    under = {identity for identity, commit in reported.items() if commit.epoch == newest.epoch}
    for identity, commit in reported.items():
        if not under & {member.identity for member in commit.members}:
            raise FederationError(
                f"the sites' stores are of different federations that are called "
                f"{newest.federation!r}: {listed({identity})} is under {commit.order}, "
                f"{listed(under)} under {newest.order}; choose who takes part"
            )
    excused = there.excused(newest)
    members = {member.identity for member in newest.members_present} - excused
    reporters = {identity for identity in under if reported[identity] == newest}
    who = f"the state-dir is new, and {listed(reporters)} report commit {newest.order}"
    settle = (
        "name them in leave if that is so; if not, go on without those who report it, or set "
        "reshare = true for a new exchange"
    )
    if left_out := under - members - excused:
        raise FederationError(
            f"{who}, which is without {listed(left_out)}, who are there: {settle}"
        )
    voters = set(reported) - excused
    unaware = {identity for identity in voters if there.seen[identity] < newest.number}
    if 2 * len(unaware) >= len(voters):
        raise FederationError(
            f"{who}, of an exchange that {listed(unaware)} had no part in: {settle}"
        )
    if against := {i for i in under - reporters if not newest.may_follow(reported[i])}:
        raise FederationError(
            f"{who}, which contradicts what {listed(against)} report: choose who takes part, or "
            "set reshare = true for a new exchange"
        )
    here = members & set(there.names)
    if 2 * len(here) <= len(members):
        raise FederationError(
            f"{who}, of whose {len(members)} sites {len(here)} are there: have more of them "
            "connected, name those in leave that left, or set reshare = true for a new exchange"
        )
