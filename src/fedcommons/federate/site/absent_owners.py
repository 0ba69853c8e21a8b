"""Which absent owners' examples a site corrects with, so that nothing shows of few of them.

The server sees what a site makes of the copies that it holds, and says itself who is absent, and at
which models their answers were made. So whatever it says, a site takes all that it holds of an
owner together: a correction, and any sum or difference of corrections, is made of sums over whole
such sets. A set counts if it has `min-examples`, and if what others hold and it does not, and what
the owner does not share, are none or as many: else the difference to what others send, or the owner
itself, would be about fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcommons.checks import IntArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.holders import Copies, copies_of, n_private
from fedcommons.federate.site.holdings import Holdings


@dataclass(frozen=True, slots=True)
class HeldOf:
    """What a site holds of one owner.

    Attributes:
        owner: its place in the roster.
        places: where these examples are among all that the site holds.
        copies: who holds how many of its examples.
        others: (N,) how many each member holds, 0 for those that correct nothing with them.
    """

    owner: int
    places: IntArray
    copies: Copies
    others: IntArray


def correctable(commit: Commit, me: int, held: Holdings, least: int) -> dict[int, HeldOf]:
    """The owners that the site at place `me` may correct, by place.

    Other members are taken to have the same minimum.
    """
    found, first = {}, len(held.own)
    for owner, numbers in held.senders:
        places, first = np.arange(first, first + len(numbers)), first + len(numbers)
        if not commit.active[owner]:
            continue
        copies = copies_of(commit.record, owner)
        beside = copies.n_shared - copies.held
        counts = np.where((copies.held >= least) & ((beside == 0) | (beside >= least)), 1, 0)
        private = n_private(commit, owner)
        if 0 < private < least or not len(numbers) or not counts[me]:
            continue
        found[owner] = HeldOf(owner, places, copies, copies.held * counts)
    return found
