"""What sites claim to have, bounded before anybody works for it.

A claim costs the others: each draws for every row that a site says it may share, and every step is
divided by all examples. What a site really has nobody can see, so a claim beyond the operator's
cap, or far above the last one, is held back: the site is quarantined until the operator lifts
that, which approves the claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.records import Offer
from fedcommons.federate.server.quarantine import Offence, Quarantine

MOST_EXAMPLES = 10_000_000  # of a site, by default
JUMP = 10  # times what it had by the last commit


def held_back(
    offers: Sequence[Offer], commit: Commit | None, quarantine: Quarantine, most: int
) -> dict[str, Offence]:
    """Whose claims are to be approved first, by identity."""
    before: Mapping[str, int] = (
        {member.identity: member.n_examples for member in commit.members} if commit else {}
    )
    found = {}
    for offer in offers:
        n, known = offer.n_examples, before.get(offer.identity)
        if n <= quarantine.approved.get(offer.identity, 0):
            continue
        if n > most:
            why = f"it claims {n} examples, max-examples is {most}"
        elif known and n > JUMP * known:
            why = f"it claims {n} examples, {known} by the last commit"
        else:
            continue
        found[offer.identity] = Offence(f"{why}: held back until you approve", examples=n)
    return found
