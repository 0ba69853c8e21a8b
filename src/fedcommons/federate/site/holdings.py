"""What a site holds under a commit, and the share that it has of each example.

A code looks at one example's holders at a time, so a site needs the placement of what it holds
itself and no more; the shares come from `fedcommons.coding`, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcommons import coding
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.placement import Placement


@dataclass(frozen=True, slots=True)
class Held:
    """The examples that one site holds: its own in the order of rows, then each sender's.

    Attributes:
        own: the site's own share numbers, -1 for an example that is not shareable.
        senders: (place in the roster, share numbers) of what was received.
        placement: of these examples, at all sites of the roster.
        shares: (examples,) this site's share of each, under the commit's code.
    """

    own: IntArray
    senders: tuple[tuple[int, IntArray], ...]
    placement: Placement
    shares: FloatArray

    @property
    def coverage(self) -> float:
        """sum of 1/d_j: over all sites it adds up to M."""
        return float((1 / self.placement.holder_counts).sum())

    @property
    def own_shared(self) -> BoolArray:
        """(own examples,) those of which others hold a copy."""
        return self.placement.copies[: len(self.own)] > 0


def held_by(commit: Commit, me: int, own: IntArray) -> Held:
    """What the site at place `me` holds; `own` are the share numbers of its live rows, or -1."""
    N = len(commit.members)
    delivered = np.zeros((N, N), np.bool_)
    if commit.pairs:
        delivered[tuple(np.array(commit.pairs).T)] = True
    senders = []
    for sender in np.flatnonzero(delivered[:, me]).tolist():
        numbers = commit.draw.assigned(sender, me)
        senders.append((sender, numbers[~np.isin(numbers, commit.withdrawn[sender])]))
    owners = [np.full(len(own), me), *(np.full(len(n), s) for s, n in senders)]
    columns, recipients, first = [], [], 0
    for sender, numbers in [(me, own), *senders]:
        shared = np.flatnonzero(numbers >= 0)
        places = commit.draw.recipients_of(sender, numbers[shared])
        row, which = np.nonzero(delivered[sender][places])
        columns.append(first + shared[row])
        recipients.append(places[row, which])
        first += len(numbers)
    placement = Placement.from_copies(
        np.concatenate(owners), np.concatenate(columns), np.concatenate(recipients), n_clients=N
    )
    shares = coding.shares_of(
        me,
        commit.code,
        placement,
        straggler_prob=commit.straggler_prob,
        owner_share=commit.owner_share,
    )
    return Held(own, tuple(senders), placement, shares)
