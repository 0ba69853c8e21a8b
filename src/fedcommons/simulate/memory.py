"""The memory estimator in example space: what every client answered last, for many curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons.checks import BoolArray, FloatArray
from fedcommons.estimators import ESTIMATORS, SecondMoment
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
        moments: Sequence[SecondMoment | None],
        answered: BoolArray,
        weight: FloatArray,
        moves: Mapping[int, FloatArray],
        G: Float32,
        n_classes: int,
    ) -> None:
        """`curves` are places in the others' axis of curves.

        Args:
            warm: (C,) whether a curve's memory starts from everybody's first answer.
            shares: (C, N, M).
            moments: (C,) the estimators' second moments.
            answered: (T, C, N).
            weight: (T, C, N) v, of what is remembered.
            moves: by curve, (T, N) how far the memory moves; left out if answers replace it.
            G: (M, M) products of inputs.
        """
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
        self.warm = warm[self.curves]
        of_mine = [moments[k] for k in curves]
        self.beta = np.stack([np.full(N, np.nan) if m is None else m.beta for m in of_mine])
        self.noise = [_noise(m, N) for m in of_mine]
        self.moves = {place: moves[k] for place, k in enumerate(curves) if k in moves}
        self.answered = answered[:, self.curves, None, :, None]
        self.weight = weight[:, self.curves, None, :, None].astype(np.float32)
        self.last = np.zeros((K, n_classes, N, width), np.float32)
        self.started = False

    def step(self, t: int, Z: Float32) -> tuple[Float32, FloatArray]:
        """One round, from residuals (K, L, M); then remember the answers that came.

        Returns sum_i v_i h_i as coefficients, (K, L, M), and the estimate's variance,
        sum_i beta_i |c_i f_i + e_i h_i|^2, (K,).
        """
        K, L, N, width = self.last.shape
        fresh = Z.take(self.held, axis=2) * self.share
        if not self.started:
            self.started = True
            self.last[self.warm] = fresh[self.warm]
        change = fresh - self.last
        for place, noise in enumerate(self.noise):
            if noise is not None:
                change[place] = noise[0] * fresh[place] + noise[1] * self.last[place]
        change = change.reshape(K * L, N, width).transpose(1, 0, 2)
        norms2 = np.einsum("nrw,nrw->nr", change @ self.forms, change).reshape(N, K, L)
        weighted = (self.weight[t] * self.last).reshape(K * L, -1)
        contribution = np.asarray(self.to_examples @ weighted.T).T.reshape(Z.shape)
        moved = {place: rate[t][:, None].astype(np.float32) for place, rate in self.moves.items()}
        before = {place: self.last[place].copy() for place in moved}
        np.copyto(self.last, fresh, where=self.answered[t])
        for place, rate in moved.items():
            self.last[place] = before[place] + rate * (fresh[place] - before[place])
        return contribution, (self.beta * norms2.sum(axis=2, dtype=np.float64).T).sum(axis=1)

    def weighted(self, curve: int, weight: Float32, Z: Float32) -> Float32:
        """sum_i weight_i h_i of one curve as coefficients, (L, M), for weights (N,).

        Before the first round a warm memory holds what the residuals Z, (L, M), say.
        """
        place = int(np.flatnonzero(self.curves == curve)[0])
        last = self.last[place]
        if not self.started and self.warm[place]:
            last = Z.take(self.held, axis=1) * self.share[place]
        rows = (weight[:, None] * last).reshape(len(last), -1)
        return np.asarray(self.to_examples @ rows.T).T


def _noise(moment: SecondMoment | None, n_clients: int) -> tuple[Float32, Float32] | None:
    """c and e, (N, 1) each; None for f - h."""
    if moment is None:
        return None
    c, e = (np.ones(n_clients), np.zeros(n_clients)) if moment.noise is None else moment.noise
    if (c == 1).all() and (e == -1).all():
        return None
    return c[:, None].astype(np.float32), e[:, None].astype(np.float32)


def by_placement(curves: Sequence[Curve], shares: FloatArray) -> list[list[int]]:
    """The places of the curves that remember, those with the same holders together."""
    groups: dict[bytes, list[int]] = {}
    for k, curve in enumerate(curves):
        if ESTIMATORS[curve.estimator].remembers:
            groups.setdefault((shares[k] != 0).tobytes(), []).append(k)
    return list(groups.values())
