"""Which commit a server takes up that sites report and it does not have, or has no more.

A commit is not signed by anybody: one store from elsewhere must not turn a federation over, nor
throw out sites that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit


def newest_of(reported: Mapping[str, Commit]) -> Commit | None:
    """The newest commit that sites, by identity, report."""
    return max(reported.values(), key=lambda commit: commit.order, default=None)


def is_later(newest: Commit, own: Commit, reported: Mapping[str, Commit], here: Set[str]) -> bool:
    """Whether a commit comes after the server's own, by the word of most members that are there."""
    members = {member.identity for member in own.members_present} & here
    if newest.epoch == own.epoch:
        under = sum(reported.get(identity) == newest for identity in members)
        return 2 * under > len(members) and newest.may_follow(own)
    return 2 * sum(reported[i].epoch == newest.epoch for i in members & set(reported)) > len(
        members
    )


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Who is there when a server without a commit of its own hears of one; all by identity.

    Attributes:
        names: the sites that were heard.
        reported: what they say they are under.
        seen: the highest epoch that each has taken part in.
        withdrew: those that took everything back.
        leaving: the names of sites that left for good, there or not.
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
    """Refuse to begin from a commit that those who are there do not bear out."""
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
