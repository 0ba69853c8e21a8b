"""How well what is remembered foretells answers, seen at the clients that answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedcommons.checks import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class Comparison:
    """How well what is remembered foretells the answers of a round, beside the other answers.

    Sums over the clients that answer in time, were heard before and are not alone, with f_i and h_i
    per unit of share, and m_i the mean, by share, of what the others answer in time:

        agreement = sum_i W_i <f_i - m_i, h_i - m_i>,    spread = sum_i W_i |h_i - m_i|^2.

    Their quotient is the l for which the forecasts l h_i + (1 - l) m_i have the least squared
    error, sum_i W_i |f_i - l h_i - (1 - l) m_i|^2.
    """

    agreement: float
    spread: float

    @classmethod
    def of(
        cls,
        parts: Iterable[tuple[FloatArray, FloatArray]],
        heard: BoolArray,
        shares: FloatArray,
    ) -> Comparison:
        """Of the n clients that answer in time: some parameters at a time, in any parts.

        Args:
            parts: pairs of answers and what is remembered, (n, B) each, not per unit of share.
            heard: (n,) of whom something is remembered.
            shares: (n,) W_i.
        """
        others = shares.sum() - shares
        used = np.flatnonzero(heard & (shares > 0) & (others > 0))
        W, agreement, spread = shares[used], 0.0, 0.0
        for f, h in parts:
            if not len(used):
                break
            mean = (f.sum(axis=0) - f[used]) / others[used, None]
            from_mean = h[used] / W[:, None] - mean
            agreement += float(W @ np.einsum("np,np->n", from_mean, f[used] / W[:, None] - mean))
            spread += float(W @ np.einsum("np,np->n", from_mean, from_mean))
        return cls(agreement, spread)
