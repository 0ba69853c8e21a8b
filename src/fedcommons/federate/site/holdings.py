"""What a site holds under a commit, and its share of each example.

A code looks at the holders of one example at a time, so a site only needs the placement of what it
holds itself. The shares come from `fedcommons.coding`, as they do everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcommons import coding
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.coding import CODES
from fedcommons.federate.protocol import holders
from fedcommons.federate.protocol.commits import Commit
from fedcommons.placement import Placement


@dataclass(frozen=True, slots=True)
class Holdings:
    """The examples that one site holds: its own in the order of rows, then those of each sender.

    Attributes:
        own: the share numbers of the site's own examples, -1 for one that is not shareable.
        senders: (place in the roster, share numbers) of what was received.
        placement: which sites of the roster hold each of these examples.
        shares: (examples,) this site's share of each, by the commit's code.
    """

    own: IntArray
    senders: tuple[tuple[int, IntArray], ...]
    placement: Placement
    shares: FloatArray

    @property
    def coverage(self) -> float:
        """The sum of 1/d_j over these examples; the coverages of all sites add up to M."""
        return float((1 / self.placement.holder_counts).sum())

    @property
    def own_shared(self) -> BoolArray:
        """(own examples,) whether others hold a copy."""
        return self.placement.copies[: len(self.own)] > 0


def holdings_of(commit: Commit, me: int, own: IntArray) -> Holdings:
    """What the site at place `me` holds; `own` are the share numbers of its live rows, or -1."""
    senders = []
    for sender in np.flatnonzero(holders.delivered(commit)[:, me]).tolist():
        numbers = commit.draw.assigned(sender, me)
        senders.append((sender, numbers[~np.isin(numbers, commit.withdrawn[sender])]))
    placement, without_owner = holders.placement_of(commit, [(me, own), *senders])
    shares = coding.shares_of(
        me,
        commit.code,
        placement,
        straggler_prob=commit.straggler_prob,
        owner_share=commit.owner_share,
    )
    if CODES[commit.code].needs_owner_share:
        shares = np.where(without_owner, 1 / placement.holder_counts, shares)
    return Holdings(own, tuple(senders), placement, shares)
