"""What Theorem 2 and Figure 3 speak of, at the model of every round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray, IntArray
from fedcommons.sharing import SCHEMES
from fedcommons.simulate import draws
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.result import RANDOMISED, THEOREM2, THEORY
from fedcommons.stragglers import odds
from fedcommons.theory import variance_reduction
from fedcommons.theory.scalar_products import PairSums, Sum

Float32 = npt.NDArray[np.float32]


class TheoryColumns:
    """What Theorem 2 and Figure 3 speak of, for the curves of a run that ask for it.

    Every round leaves the sums of scalar products of gradients, private and shareable apart, over
    all pairs, over those of a class and over those of an owner.
    """

    def __init__(
        self,
        curves: Sequence[Curve],
        shared: Sequence[draws.Shared],
        asked: Sequence[int],
        labels: IntArray,
        G: Float32,
    ) -> None:
        self.curves = [curves[k] for k in asked]
        self.asked = asked
        self.n_clients = shared[0].placement.n_clients
        self.shareable = [shared[k].shareable.astype(np.float32) for k in asked]
        owners = [shared[k].owner for k in asked]
        self.in_theorem = [np.array_equal(owner, labels) for owner in owners]
        same = {g.tobytes(): G * (g[:, None] == g) for g in (labels, *owners)}
        self.G, self.same_class = G, same[labels.tobytes()]
        self.same_owner = [same[owner.tobytes()] for owner in owners]
        self.sums: list[list[FloatArray]] = [[] for _ in asked]
        self.own: list[list[FloatArray]] = [[] for _ in asked]

    def add(self, Z: Float32) -> None:
        """Some rounds: residuals (C, rounds, L, M)."""
        for i, k in enumerate(self.asked):
            shareable = Z[k] * self.shareable[i]
            parts = np.stack([Z[k] - shareable, shareable])
            norms2 = np.einsum("tlm,tlm->tm", shareable, shareable) * np.diagonal(self.G)
            self.own[i].append(norms2.sum(axis=1, dtype=np.float64))
            same_class = _sums(parts, self.same_class)
            same_owner = same_class if self.in_theorem[i] else _sums(parts, self.same_owner[i])
            self.sums[i].append(np.stack([_sums(parts, self.G), same_class, same_owner]))

    def columns(self, variance: FloatArray) -> FloatArray:
        """(curves, rounds, THEORY), from the variances of the curves, (curves, rounds)."""
        result = np.empty((*variance.shape, len(THEORY)))
        for i, curve in enumerate(self.curves):
            total, same_class, same_owner = np.concatenate(self.sums[i], axis=-1)
            own = np.concatenate(self.own[i])
            by_class, by_owner = (_pair_sums(total, s, own) for s in (same_class, same_owner))
            result[i] = np.stack(self._columns_of(curve, by_class, by_owner, variance[i]), axis=1)
            if not self.in_theorem[i]:  # Theorem 2 is stated for owner = class
                result[i][:, _places(THEOREM2)] = np.nan
            if not SCHEMES[curve.scheme].is_randomised:
                result[i][:, _places(RANDOMISED)] = np.nan
        return result

    def _columns_of(
        self, curve: Curve, by_class: PairSums, by_owner: PairSums, variance: FloatArray
    ) -> tuple[Sum, ...]:
        d, p = curve.copies, curve.straggler_prob
        margins = variance_reduction.assumption1(by_class)
        return (
            by_class.same,
            by_class.total - by_class.same,
            float(odds(p, 1)[0]) * by_owner.same - variance,
            variance_reduction.expected_reduction(
                by_owner, n_clients=self.n_clients, copies=d, straggler_prob=p
            ),
            variance_reduction.theorem2_bound(by_class, copies=d, straggler_prob=p),
            variance_reduction.remark_bound(by_class, copies=d, straggler_prob=p),
            margins.mixed_margin,
            margins.shared_margin,
            variance_reduction.remark_margin(by_class),
        )


def _places(names: Sequence[str]) -> list[int]:
    return [THEORY.index(name) for name in names]


def _sums(parts: Float32, form: Float32) -> FloatArray:
    """Sums of scalar products by kind of pair, (2, 2, rounds): private and shareable residuals.

    `parts` are the residuals of each kind, (2, rounds, L, M); `form` is G on the pairs that count.
    """
    through = (parts.reshape(-1, len(form)) @ form).reshape(parts.shape)
    return np.einsum("atlm,btlm->abtl", parts, through).sum(axis=-1, dtype=np.float64)


def _pair_sums(total: FloatArray, same: FloatArray, own: FloatArray) -> PairSums:
    """From the sums over all pairs and over those of the same group, (2, 2, rounds) each."""
    diff = total - same
    return PairSums(
        same_private=same[0, 0],
        diff_private=diff[0, 0],
        same_mixed=2 * same[0, 1],  # ordered pairs: both ways round
        diff_mixed=2 * diff[0, 1],
        self_shared=own,
        same_shared=same[1, 1],
        diff_shared=diff[1, 1],
    )
