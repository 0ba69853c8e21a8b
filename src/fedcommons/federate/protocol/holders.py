"""Who holds which example under a commit, as sites and the server work it out.

A code looks at the holders of one example at a time, so each party does this for as many examples
as it needs. Who is quarantined holds nothing: an example of such an owner counts as the first
remaining holder's, and all its holders share it equally, since no owner is there to be corrected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedcommons import coding
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.coding import CODES
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.draw import BLOCK
from fedcommons.placement import Placement


def delivered(commit: Commit) -> BoolArray:
    """(N, N) which deliveries count, by sender and recipient."""
    N = len(commit.members)
    found = np.zeros((N, N), np.bool_)
    if commit.pairs:
        found[tuple(np.array(commit.pairs).T)] = True
    found[:, list(commit.quarantined)] = False
    found[list(commit.set_aside)] = False
    return found


def placement_of(
    commit: Commit, parts: Sequence[tuple[int, IntArray]]
) -> tuple[Placement, BoolArray]:
    """Who holds these examples, and which of them have an owner that is not asked.

    Args:
        parts: (owner, its share numbers), -1 for an example that is not shareable. Of an owner
            that is not asked only those that somebody else holds.
    """
    counts = delivered(commit)
    owners = [np.full(len(numbers), place) for place, numbers in parts]
    columns, recipients, first = [], [], 0
    for (place, numbers), owner in zip(parts, owners, strict=True):
        shared = np.flatnonzero(numbers >= 0)
        places = commit.draw.recipients_of(place, numbers[shared])
        row, which = np.nonzero(counts[place][places])
        holder = places[row, which]
        if not commit.active[place]:
            leads = np.diff(row, prepend=-1) != 0
            owner[shared[row[leads]]] = holder[leads]
            row, holder = row[~leads], holder[~leads]
        columns.append(first + shared[row])
        recipients.append(holder)
        first += len(numbers)
    placement = Placement.from_copies(
        np.concatenate(owners),
        np.concatenate(columns),
        np.concatenate(recipients),
        n_clients=len(commit.members),
    )
    without_owner = np.concatenate(
        [np.full(len(numbers), not commit.active[place]) for place, numbers in parts]
    )
    return placement, without_owner


@lru_cache(maxsize=4)
def held_by_each(commit_record: bytes) -> tuple[FloatArray, FloatArray]:
    """What each member holds under the commit of this record: (N,), (N,).

    The sum of 1/d_j over its examples, and the sum of the sizes of its shares.
    """
    commit = Commit.decode(commit_record)
    coverage = np.zeros(len(commit.members))
    for place in range(len(commit.members)):
        if commit.active[place]:
            coverage[place] = n_private(commit, place)
    weight = coverage.copy()
    for parts in _some_at_once(commit):
        more, heavier = _of_block(commit, parts)
        coverage += more
        weight += heavier
    return coverage, weight


@lru_cache(maxsize=4)
def owned_by_each(commit_record: bytes) -> FloatArray:
    """How many examples each member answers for if all work on their own alone: (N,).

    Those of an owner that is not asked count as their first holder's.
    """
    commit = Commit.decode(commit_record)
    owned = np.zeros(len(commit.members))
    for place in np.flatnonzero(commit.active).tolist():
        owned[place] = n_private(commit, place)
    for parts in _some_at_once(commit):
        owned += placement_of(commit, parts)[0].owned_counts()
    return owned


def n_private(commit: Commit, place: int) -> int:
    """How many of a member's examples may not be shared, and are still there."""
    return commit.members[place].n_private - commit.withdrawn_private[place]


@dataclass(frozen=True, slots=True)
class Copies:
    """Of the examples of one owner: how many there are, and who has copies.

    Attributes:
        n: all that it trains on.
        n_shared: those that somebody else holds.
        held: (N,) how many of these each member holds.
    """

    n: int
    n_shared: int
    held: IntArray


@lru_cache(maxsize=256)
def copies_of(commit_record: bytes, owner: int) -> Copies:
    """Who has copies of an owner's examples, one that is asked, under the commit of this record."""
    commit = _decoded(commit_record)
    numbers = np.arange(commit.members[owner].n_shareable)
    numbers = numbers[~np.isin(numbers, np.array(commit.withdrawn[owner], np.int64))]
    placement, _ = placement_of(commit, [(owner, numbers)])
    held = np.bincount(placement.recipients, minlength=len(commit.members))
    n_shared = int((placement.copies > 0).sum())
    return Copies(n_private(commit, owner) + len(numbers), n_shared, held)


@lru_cache(maxsize=4)
def _decoded(commit_record: bytes) -> Commit:
    return Commit.decode(commit_record)


def _some_at_once(commit: Commit) -> Iterator[list[tuple[int, IntArray]]]:
    """All shareable examples that somebody answers for, (owner, share numbers), some at a time.

    Owners that are asked come first, and no part has both kinds.
    """
    counts = delivered(commit)
    here = np.flatnonzero(np.array(commit.present))
    asked = np.array(commit.active)[here]
    for places in (here[asked], here[~asked]):
        parts, size = [], 0
        for place in places.tolist():
            gone = np.array(commit.withdrawn[place], np.int64)
            n = commit.members[place].n_shareable
            for start in range(0, n, BLOCK):
                numbers = np.arange(start, min(start + BLOCK, n))
                numbers = numbers[~np.isin(numbers, gone)]
                if not commit.active[place]:
                    recipients = commit.draw.recipients_of(place, numbers)
                    numbers = numbers[counts[place][recipients].any(axis=1)]
                if not len(numbers):
                    continue
                parts.append((place, numbers))
                size += len(numbers)
                if size >= BLOCK:
                    yield parts
                    parts, size = [], 0
        if parts:
            yield parts


def _of_block(
    commit: Commit, parts: Sequence[tuple[int, IntArray]]
) -> tuple[FloatArray, FloatArray]:
    placement, without_owner = placement_of(commit, parts)
    equal = np.asarray(placement.holdings() @ (1 / placement.holder_counts), np.float64)
    if without_owner.any() and CODES[commit.code].needs_owner_share:
        return equal, equal
    shares = coding.by_name(
        commit.code,
        placement,
        straggler_prob=commit.straggler_prob,
        owner_share=commit.owner_share,
    )
    return equal, np.asarray(abs(shares).sum(axis=1), np.float64).ravel()
