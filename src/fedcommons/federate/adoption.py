"""Which commit a server takes up that sites report and it does not have, or has no more.

A commit is not signed by anybody: one store from elsewhere must not turn a federation over, nor
throw out sites that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from fedcommons.errors import FederationError
from fedcommons.federate.commits import Commit


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


def check_believable(
    newest: Commit, reported: Mapping[str, Commit], names: Mapping[str, str], excused: Set[str]
) -> None:
    """Refuse to begin from a commit that those who are there do not bear out.

    Args:
        newest: the commit, of a server that has none of its own.
        reported: what sites say they are under, by identity.
        names: the names of all sites that are there, by identity.
        excused: the identities of those that leave: nobody misses them.
    """
    under = {identity for identity, commit in reported.items() if commit.epoch == newest.epoch}

    def listed(identities: Set[str]) -> str:
        return ", ".join(sorted(names[identity] for identity in identities))

    for identity, commit in reported.items():
        if not under & {member.identity for member in commit.members}:
            raise FederationError(
                f"the sites' stores are of different federations that are called "
                f"{newest.federation!r}: {names[identity]} is under {commit.order}, "
                f"{listed(under)} under {newest.order}; choose who takes part"
            )
    members = {member.identity for member in newest.members_present}
    reporters = {identity for identity in under if reported[identity] == newest}
    who = f"the state-dir is new, and {listed(reporters)} report commit {newest.order}"
    if left_out := under - members - excused:
        raise FederationError(
            f"{who}, which is without {listed(left_out)}, who are there: name them in leave if "
            "that is so, or set reshare = true for a new exchange"
        )
    if against := {i for i in under - reporters if not newest.may_follow(reported[i])}:
        raise FederationError(
            f"{who}, which contradicts what {listed(against)} report: choose who takes part, or "
            "set reshare = true for a new exchange"
        )
    if 2 * len(members & set(names)) <= len(members):
        raise FederationError(
            f"{who}, of whose {len(members)} sites {len(members & set(names))} are there: have "
            "more of them connected, or set reshare = true for a new exchange"
        )
