"""The memory estimator in example space: what every client answered last, for many curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import estimators
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.simulate.curves import Curve

Float32 = npt.NDArray[np.float32]


class Memory:
    """The last answer of each client, on the examples that it holds: K curves with one placement.

    Arrays have the axes (curve, class, client, held example), padded to the client that holds most.
    """

    def __init__(
        self,
        curves: Sequence[int],
        *,
        warm: BoolArray,
        shares: FloatArray,
        beta: FloatArray,
        answered: BoolArray,
        weight: FloatArray,
        G: Float32,
        n_classes: int,
    ) -> None:
        """`curves` are places in the others' axis of curves: (C,), (C, N, M), (C, N), (T, C, N)."""
        self.curves = np.array(curves)
        b = shares[self.curves]
        K, N, M = b.shape
        counts = np.count_nonzero(b[0], axis=1)
        width = max(1, int(counts.max()))
        filled = np.arange(width) < counts[:, None]
        self.held = np.zeros((N, width), np.int64)
        self.held[filled] = np.nonzero(b[0])[1]
        self.share = np.zeros((K, 1, N, width), np.float32)
        self.share[:, 0, filled] = b[:, b[0] != 0]
        self.forms = G[self.held[:, :, None], self.held[:, None, :]]
        self.to_examples = csr_array(
            (filled.ravel().astype(np.float32), (self.held.ravel(), np.arange(N * width))),
            shape=(M, N * width),
        )
        self.warm, self.beta = warm[self.curves], beta[self.curves]
        self.answered = answered[:, self.curves, None, :, None]
        self.weight = weight[:, self.curves, None, :, None].astype(np.float32)
        self.last = np.zeros((K, n_classes, N, width), np.float32)

    def step(self, t: int, Z: Float32) -> tuple[Float32, FloatArray]:
        """One round, from residuals (K, L, M); then remember the answers that came.

        Returns sum_i v_i h_i as coefficients, (K, L, M), and sum_i beta_i |f_i - h_i|^2, (K,).
        """
        K, L, N, width = self.last.shape
        fresh = Z.take(self.held, axis=2) * self.share
        if t == 0:
            self.last[self.warm] = fresh[self.warm]
        change = (fresh - self.last).reshape(K * L, N, width).transpose(1, 0, 2)
        norms2 = np.einsum("nrw,nrw->nr", change @ self.forms, change).reshape(N, K, L)
        weighted = (self.weight[t] * self.last).reshape(K * L, -1)
        contribution = np.asarray(self.to_examples @ weighted.T).T.reshape(Z.shape)
        np.copyto(self.last, fresh, where=self.answered[t])
        return contribution, (self.beta * norms2.sum(axis=2, dtype=np.float64).T).sum(axis=1)


def by_placement(curves: Sequence[Curve], shares: FloatArray) -> list[list[int]]:
    """The places of the curves that remember, those with the same holders together."""
    groups: dict[bytes, list[int]] = {}
    for k, curve in enumerate(curves):
        if estimators.ESTIMATORS[curve.estimator].remembers:
            groups.setdefault((shares[k] != 0).tobytes(), []).append(k)
    return list(groups.values())
