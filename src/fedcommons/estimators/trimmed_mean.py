"""The trimmed mean: each coordinate without its largest and smallest values. Robust, and biased."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, Weights

TRIM = 0.2  # of the answers, at either end: two of ten


def _weigh(arrivals: Arrivals, _p: FloatArray) -> Weights:
    """Who answered is looked at; how they are combined is no weighing."""
    shape = arrivals.on_time.shape
    return Weights(arrivals.on_time.astype(np.float64), np.zeros(shape))


def _combine(gradients: FloatArray) -> FloatArray:
    """(n, P) estimates of the full gradient -> (P,)."""
    n = len(gradients)
    k = int(np.ceil(TRIM * n)) if n > 2 else 0
    k = min(k, (n - 1) // 2)
    ordered = np.sort(gradients, axis=0)
    return np.asarray(ordered[k : n - k].mean(axis=0), np.float64)


trimmed_mean = Estimator(
    name="trimmed_mean",
    caption="trimmed mean: of each number, the largest and smallest fifth of the answers left out",
    unbiased=False,
    remembers=False,
    needs_everybody=False,
    needs_p=False,
    weigh=_weigh,
    combine=_combine,
)
"""Coordinate by coordinate, over those who answered, of (M/W_i) f_i: what the full gradient would
be if everybody's examples were like those of client i, whose shares sum to W_i. With lopsided data
these differ much, and leaving out the outermost leaves out whole classes: a price paid even where
nobody is hostile (docs/privacy.md)."""
