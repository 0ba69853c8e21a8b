"""Optimal decoding: the combination of the answers that is nearest to the sum of all."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from fedcommons import decoding
from fedcommons.checks import FloatArray
from fedcommons.estimators import Arrivals, Estimator, Weights
from fedcommons.simulate.algorithms.algorithm import Algorithm


def _weigh(_estimator: Estimator, held: csr_array, arrivals: Arrivals, p: FloatArray) -> Weights:
    answered = arrivals.on_time
    mean = decoding.mean_weights(held, p, rng=np.random.default_rng(0))
    fresh = decoding.unbiased_weights(decoding.optimal_weights(held, answered), mean)
    return Weights(fresh, np.zeros(answered.shape))


optimal_decoding = Algorithm(
    name="optimal_decoding",
    source="Glasgow, Wootters, IEEE JSAIT 2(3), 2021",
    sharing="proportion-and-copies",
    several_steps=False,
    batches=True,
    estimators=False,
    hold=lambda setup: setup.shares(),
    weigh=_weigh,
)
"""w(R) = argmin |B_R^T w - 1|^2, divided by its mean for each client: as the authors have it, it is
biased towards 0, and its low error is mostly that."""
