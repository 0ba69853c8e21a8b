"""What Theorem 2 and Figure 3 speak of, at the model of every round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray, IntArray
from fedcommons.simulate import draws
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.result import THEOREM2, THEORY
from fedcommons.theory import scalar_products, variance_reduction
from fedcommons.theory.scalar_products import PairSums, Sum

Float32 = npt.NDArray[np.float32]


class TheoryColumns:
    """What Theorem 2 and Figure 3 speak of, for the curves of a run that ask for it.

    Every round leaves the scalar products of the sums of gradients by class and by owner, private
    and shareable apart; the columns are made of them at the end.
    """

    def __init__(
        self,
        curves: Sequence[Curve],
        shared: Sequence[draws.Shared],
        asked: Sequence[int],
        labels: IntArray,
    ) -> None:
        self.curves = [curves[k] for k in asked]
        self.asked = np.array(asked, np.int64)
        self.n_clients = shared[0].placement.n_clients
        self.shareable = np.array([shared[k].shareable for k in asked])
        by_class = self._membership([labels for _ in asked])
        by_owner = self._membership([shared[k].owner for k in asked])
        # In the single-class setting with N = L they are the same.
        self.members = [by_class] if np.array_equal(by_class, by_owner) else [by_class, by_owner]
        self.rounds: list[list[npt.NDArray[np.floating]]] = []
        self.variances: list[FloatArray] = []
        self.in_theorem = [np.array_equal(shared[k].owner, labels) for k in asked]

    def _membership(self, groups: Sequence[IntArray]) -> Float32:
        """(curves, blocks, M), with as many blocks as the curve with most groups needs."""
        n_groups = max(int(g.max()) for g in groups) + 1
        blocks = [
            g + n_groups * shareable for g, shareable in zip(groups, self.shareable, strict=True)
        ]
        return np.stack(
            [scalar_products.membership(b, 2 * n_groups).toarray() for b in blocks]
        ).astype(np.float32)

    def add(self, Z: Float32, G: Float32, variances: FloatArray) -> None:
        """One round: residuals (C, L, M) and the variances of all curves."""
        z = Z[self.asked]
        products = z.transpose(0, 2, 1) @ z
        products *= G
        own = np.diagonal(products, axis1=1, axis2=2)
        self.rounds.append(
            [
                (own * self.shareable).sum(axis=1, dtype=np.float64),
                *(member @ products @ member.transpose(0, 2, 1) for member in self.members),
            ]
        )
        self.variances.append(variances[self.asked])

    def columns(self) -> FloatArray:
        """(curves, rounds, THEORY)."""
        result = np.empty((len(self.curves), len(self.rounds), len(THEORY)))
        for k, curve in enumerate(self.curves):
            own, *blocks = (
                np.stack([part[k] for part in parts]) for parts in zip(*self.rounds, strict=True)
            )
            result[k] = np.stack(
                self._columns_of(
                    curve,
                    scalar_products.pair_sums_from_blocks(blocks[0], own),
                    scalar_products.pair_sums_from_blocks(blocks[-1], own),
                    np.array([variances[k] for variances in self.variances]),
                ),
                axis=1,
            )
            if not self.in_theorem[k]:  # Theorem 2 is stated for owner = class
                result[k][:, [THEORY.index(name) for name in THEOREM2]] = np.nan
        return result

    def _columns_of(
        self, curve: Curve, by_class: PairSums, by_owner: PairSums, variance: FloatArray
    ) -> tuple[Sum, ...]:
        d, p = curve.copies, curve.straggler_prob
        margins = variance_reduction.assumption1(by_class)
        return (
            by_class.same,
            by_class.total - by_class.same,
            p / (1 - p) * by_owner.same - variance,
            variance_reduction.expected_reduction(
                by_owner, n_clients=self.n_clients, copies=d, straggler_prob=p
            ),
            variance_reduction.theorem2_bound(by_class, copies=d, straggler_prob=p),
            variance_reduction.remark_bound(by_class, copies=d, straggler_prob=p),
            margins.mixed_margin,
            margins.shared_margin,
            variance_reduction.remark_margin(by_class),
        )
