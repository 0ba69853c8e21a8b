"""Filled: everybody's latest answer, and the mean of these for who was never heard. Biased."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, Weights
from fedcommons.estimators.latest import latest


def _weigh(arrivals: Arrivals, p: FloatArray) -> Weights:
    """Those of `latest`, times sum_i W_i over its sum over the clients that were heard."""
    plain = latest.weigh(arrivals, p)
    if arrivals.heard is None:
        return plain
    known = arrivals.heard | arrivals.on_time | arrivals.late
    W = np.ones(known.shape[-1]) if arrivals.shares is None else arrivals.shares
    of_known = (W * known).sum(axis=-1, keepdims=True)
    factor = np.divide(W.sum(), of_known, out=np.ones_like(of_known), where=of_known > 0)
    late = None if plain.late is None else factor * plain.late
    return Weights(factor * plain.fresh, factor * plain.remembered, late)


filled = Estimator(
    name="filled",
    caption="filled: latest answers, and their mean for clients that were never heard",
    unbiased=False,
    remembers=True,
    needs_everybody=False,
    needs_p=False,
    weigh=_weigh,
    moment=lambda _p: None,
)
"""(sum_i W_i / sum_{i heard} W_i) sum_{i heard} h_i, with h_i = f_i for those who answer, and W_i
the sum of client i's shares. It is `latest` as soon as everybody was heard once.

Until then `latest` counts those who were not as 0: its first steps are too short, by half in the
first round at p = 1/2. Where all answers per unit of share are alike, this one has no bias, and is
the average of those that answered in the first round (docs/federation/unbiased.md). Its second
moment depends on who was heard before."""
