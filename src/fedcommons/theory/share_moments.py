"""The first two moments of each share b_ij over randomised sharing, for every code.

Examples' subsets are drawn independently, so no more is needed to know what clients will answer on
average (`expected_variance`). For the equal split and the owner-corrected code the recipients of an
example have the same share, and everything is a sum over owners. Under the reliability split a
share depends on who else holds the example: all groups of d + 1 holders are looked at where they
are few, some drawn at random where they are many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import comb

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import coding
from fedcommons.checks import FloatArray
from fedcommons.placement import Placement

ENTRIES = 200_000  # of the groups' members: all groups up to this many, else about as many drawn
DRAWS = 32  # groups that each client is drawn into at least, an even number
PAIRS_UP_TO = 500  # clients; with more, one (E b)^2 for all owners changes the variance below 1e-4


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of the shares, summed over examples where these are received.

    Where the groups are drawn at random there are two independent estimates of each mean (a first
    axis of 2, else of 1): the product of the two is an unbiased estimate of a mean's square, which
    the square of one is not.

    Attributes:
        own: (1 or 2, N) E b of an owner for an example it shared.
        own_square: (N,) E b^2 of it.
        received: (1 or 2, N, L) the sum of E b over what a client receives of each class.
        received_square: (N, L) that of E b^2.
        squared_means: takes a number for each owner and class to its sum weighted with (E b)^2,
            at each recipient: (N, L) to (N, L).
    """

    own: FloatArray
    own_square: FloatArray
    received: FloatArray
    received_square: FloatArray
    squared_means: Callable[[FloatArray], FloatArray]

    def of_part(self, part: float) -> Moments:
        """The same if only a part of it is offered."""
        return replace(
            self, received=part * self.received, received_square=part * self.received_square
        )


def even_recipients(own: FloatArray, offered: FloatArray, copies: int) -> Moments:
    """The owner has the share `own`, (..., N), the recipients of its examples split the rest.

    `offered` is what the owners share, (..., N, L).
    """
    N, d = offered.shape[-2], copies
    q = d / (N - 1) if d else 0.0  # that a certain client receives a certain example
    theirs = ((1 - own) / max(d, 1))[..., None]

    def from_others(x: FloatArray) -> FloatArray:
        return x.sum(axis=-2, keepdims=True) - x

    return Moments(
        own[None],
        own**2,
        q * from_others(theirs * offered)[None],
        q * from_others(theirs**2 * offered),
        lambda x: q**2 * from_others(theirs**2 * x),
    )


class ReliabilitySplit:
    """`coding.reliability_split` for one p and d, from groups of d + 1 holders.

    Whose example it is makes no difference to the shares in a group, so a group tells about all its
    members as owners, and as recipients of the others' examples.
    """

    def __init__(self, straggler_prob: FloatArray, copies: int) -> None:
        self.N, self.d = len(straggler_prob), copies
        self.halves = [_Groups(groups, straggler_prob) for groups in _groups(self.N, self.d + 1)]
        self.own = np.stack([half.own for half in self.halves])
        self.own_square = np.mean([half.own_square for half in self.halves], axis=0)
        # (E b)^2 of each recipient (row) and owner, or for any owner.
        first, last = self.halves[0], self.halves[-1]
        if self.N <= PAIRS_UP_TO:
            self.pairs = first.pair_means() * last.pair_means()
        else:
            self.pairs = (first.own * last.own * (self.d / (self.N - 1)) ** 2)[:, None]

    def moments(self, offered: FloatArray) -> Moments:
        """For what the owners share, (N, L)."""
        sums = [half.received(offered) for half in self.halves]
        return Moments(
            self.own,
            self.own_square,
            np.stack([first for first, _ in sums]),
            np.mean([second for _, second in sums], axis=0),
            self._squared_means,
        )

    def _squared_means(self, x: FloatArray) -> FloatArray:
        if self.pairs.shape[1] == 1:
            return self.pairs * (x.sum(axis=0) - x)
        return self.pairs @ x


def _groups(n_clients: int, size: int) -> list[npt.NDArray[np.int32]]:
    """All groups of this size, or two independent lots of random ones: (groups, size), sorted.

    Random ones are cut from random orders of all clients, so that all are in equally many.
    """
    N = n_clients
    if comb(N, size) * size <= ENTRIES:
        every = chain.from_iterable(combinations(range(N), size))
        return [np.fromiter(every, np.int32).reshape(-1, size)]
    rng = np.random.default_rng(0)  # the same plan every time
    lots = []
    for _ in range(2):
        orders = np.tile(np.arange(N, dtype=np.int32), (max(DRAWS, ENTRIES // N) // 2, 1))
        drawn = rng.permuted(orders, axis=1)[:, : N // size * size].reshape(-1, size)
        drawn.sort(axis=1)
        lots.append(drawn)
    return lots


class _Groups:
    """Some groups of holders and the shares of their members."""

    def __init__(self, members: npt.NDArray[np.int32], straggler_prob: FloatArray) -> None:
        n_groups, size = members.shape
        placement = Placement(
            members[:, 0], np.arange(n_groups + 1) * (size - 1), members[:, 1:].ravel(),
            len(straggler_prob),
        )  # fmt: skip
        b = coding.reliability_split(placement, straggler_prob)
        self.shares = b
        self.squares = csr_array((b.data**2, b.indices, b.indptr), shape=b.shape)
        self.members = csr_array((np.ones_like(b.data), b.indices, b.indptr), shape=b.shape)
        self.weight = len(straggler_prob) / (n_groups * size)  # 1 / groups that a client is in
        self.own = self.weight * np.asarray(self.shares.sum(axis=1))
        self.own_square = self.weight * np.asarray(self.squares.sum(axis=1))

    def received(self, offered: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The sums of E b and of E b^2 over what clients receive: (N, L) each."""
        in_group = self.members.T @ offered
        return (
            self.weight * (self.shares @ in_group) - self.own[:, None] * offered,
            self.weight * (self.squares @ in_group) - self.own_square[:, None] * offered,
        )

    def pair_means(self) -> FloatArray:
        """E b of each recipient (row) for an example of each owner (column): (N, N)."""
        means = self.weight * (self.shares @ self.members.T).toarray()
        np.fill_diagonal(means, 0)
        return means
