"""Theorem 2: how much randomised sharing reduces the second moment (arXiv 2404.03524v1, App. B).

All functions take the sums of scalar products by kind of pair (`scalar_products.PairSums`). With
groups = owners, `expected_second_moment` is exact for any partition; the paper's bounds are stated
for the single-class setting, where owner and class are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcommons import checks
from fedcommons.stragglers import odds
from fedcommons.theory import lambdas
from fedcommons.theory.scalar_products import PairSums, Sum


def expected_second_moment(
    pairs: PairSums, *, n_clients: int, copies: int, straggler_prob: float
) -> Sum:
    """E|g^_Y|^2 over sharing and straggling, exact: equation (secmY) with the expected lambdas.

    For the paper's code, equal p and a model that does not depend on the placement (round 0, or a
    fixed one).
    """
    factors = lambdas.expected(n_clients=n_clients, copies=copies, straggler_prob=straggler_prob)
    return weighted_sum(pairs, factors)


def weighted_sum(pairs: PairSums, factors: lambdas.Lambdas) -> Sum:
    """The second moment: every kind of pair times its factor."""
    return (
        factors.same_private * pairs.same_private
        + factors.diff_private * pairs.diff_private
        + factors.same_mixed * pairs.same_mixed
        + factors.diff_mixed * pairs.diff_mixed
        + factors.self_shared * pairs.self_shared
        + factors.same_shared * (pairs.same_shared - pairs.self_shared)
        + factors.diff_shared * pairs.diff_shared
    )


def expected_reduction(
    pairs: PairSums, *, n_clients: int, copies: int, straggler_prob: float
) -> Sum:
    """E[|g^_X|^2 - |g^_Y|^2], of which Theorem 2 and the Remark are lower bounds."""
    unshared = expected_second_moment(
        pairs, n_clients=n_clients, copies=0, straggler_prob=straggler_prob
    )
    return unshared - expected_second_moment(
        pairs, n_clients=n_clients, copies=copies, straggler_prob=straggler_prob
    )


def theorem2_bound(pairs: PairSums, *, copies: int, straggler_prob: float) -> Sum:
    """Theorem 2's lower bound on the reduction.

    Needs Assumption 1 and also, which the paper overlooks, `distinct_margin` >= 0
    (docs/deviations.md, 12). Trivial at d = 1; negative, and so vacuous, at d = 0
    (docs/deviations.md, 5).
    """
    d = checks.integer("copies", copies, low=0)
    r = float(odds(straggler_prob, 1)[0])
    return r * (d - 1) / (d + 1) * pairs.same_shareable


def remark_bound(pairs: PairSums, *, copies: int, straggler_prob: float) -> Sum:
    """The Remark's stronger bound: needs `remark_premise` besides what Theorem 2 needs."""
    d = checks.integer("copies", copies, low=0)
    r = float(odds(straggler_prob, 1)[0])
    return r * d / (d + 1) * pairs.same_shareable


@dataclass(frozen=True, slots=True)
class Assumption1:
    """Assumption 1, part by part: the margins, each of which must be >= 0."""

    mixed_margin: Sum
    shared_margin: Sum

    @property
    def holds(self) -> bool:
        """Whether it holds, at every model."""
        return bool(np.all(np.minimum(self.mixed_margin, self.shared_margin) >= 0))


def assumption1(pairs: PairSums) -> Assumption1:
    """By how much same-group sums exceed both 0 and the sums over different groups."""
    return Assumption1(
        mixed_margin=np.minimum(pairs.same_mixed, pairs.same_mixed - pairs.diff_mixed),
        shared_margin=np.minimum(pairs.same_shared, pairs.same_shared - pairs.diff_shared),
    )


def distinct_margin(pairs: PairSums) -> Sum:
    """The sum of scalar products over *distinct* shareable examples of the same group.

    The paper gives every same np-np pair the same factor, but an example paired with itself has a
    larger one. Where the distinct pairs sum to less than 0, both bounds can fail, though Assumption
    1 holds; where this is >= 0 they follow (docs/deviations.md, 12).
    """
    return pairs.same_shared - pairs.self_shared


def remark_margin(pairs: PairSums) -> Sum:
    """By how much the sums over different groups stay below 0, as the Remark assumes."""
    return -np.maximum(pairs.diff_mixed, pairs.diff_shared)


def remark_premise(pairs: PairSums) -> bool:
    """Whether the sums over different groups are not positive, at every model."""
    return bool(np.all(remark_margin(pairs) >= 0))
