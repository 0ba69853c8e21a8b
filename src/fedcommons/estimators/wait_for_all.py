"""The ideal: gradient descent that waits for everybody, however long it takes."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, SecondMoment, Weights


def _weigh(arrivals: Arrivals, _p: FloatArray) -> Weights:
    shape = arrivals.on_time.shape
    return Weights(np.ones(shape), np.zeros(shape))


wait_for_all = Estimator(
    name="wait_for_all",
    caption="gradient descent with nobody ever missing, the ceiling",
    unbiased=True,
    remembers=False,
    needs_everybody=True,
    needs_p=False,
    weigh=_weigh,
    moment=lambda p: SecondMoment(1.0, np.zeros(len(p))),
)
