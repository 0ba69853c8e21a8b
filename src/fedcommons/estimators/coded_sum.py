"""The paper's estimator (eq. 3): sum what arrives, scaled by 1/(1 - p_i)."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, SecondMoment, Weights
from fedcommons.stragglers import odds


def _weigh(arrivals: Arrivals, p: FloatArray) -> Weights:
    return Weights(arrivals.on_time / (1 - p), np.zeros(arrivals.on_time.shape))


coded_sum = Estimator(
    name="coded_sum",
    caption="",
    unbiased=True,
    remembers=False,
    needs_everybody=False,
    needs_p=True,
    weigh=_weigh,
    moment=lambda p: SecondMoment(1.0, odds(p, len(p))),
)
"""E|g^|^2 = |g|^2 + sum_i p_i/(1-p_i) |f_i|^2 (`fedcommons.theory.second_moment`)."""
