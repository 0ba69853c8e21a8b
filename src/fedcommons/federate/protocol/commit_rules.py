"""What must hold between the fields of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcommons.coding import CODES
from fedcommons.federate.protocol.refusals import MalformedRecord, RosterRefused

if TYPE_CHECKING:
    from fedcommons.federate.protocol.commits import Commit


def check(commit: Commit) -> None:
    """Refuse a commit whose fields do not fit together."""
    _check_quarantine(commit)
    commit.check_roster()
    _check_newcomers(commit)
    if list(commit.pairs) != sorted(set(commit.pairs)):
        raise MalformedRecord("commit: pairs must be sorted, each once")
    if not all(commit.present[place] for pair in commit.pairs for place in pair):
        raise MalformedRecord("commit: pairs must be of sites that are present")
    if any(commit.has_joined(place) for pair in commit.pairs for place in pair):
        raise MalformedRecord("commit: pairs must be of sites of the exchange")
    needed = {"reliability-split": "straggler_prob", "owner-corrected": "owner_share"}
    if commit.code not in CODES or any(
        (getattr(commit, field) is None) == (commit.code == code) for code, field in needed.items()
    ):
        raise MalformedRecord(
            "commit: the code must be known, with exactly the numbers that it needs"
        )


def _check_quarantine(commit: Commit) -> None:
    """Refuse a quarantine of sites that are not members."""
    if not set(commit.set_aside) <= set(commit.quarantined):
        raise MalformedRecord("commit: who is set aside must be quarantined")
    if not all(commit.present[place] for place in commit.quarantined):
        raise MalformedRecord("commit: who is quarantined must be present")


def _check_newcomers(commit: Commit) -> None:
    """Refuse sites that joined under a name or key that is taken, or with shared examples."""
    names = {member.site for member in commit.members}
    identities = {member.identity for member in commit.members}
    if not len(names) == len(identities) == len(commit.members):
        raise RosterRefused("each name and each key must be in the roster once")
    if any(member.n_shareable for member in commit.members[len(commit.roster) :]):
        raise MalformedRecord("commit: sites that joined must have no shareable examples")
