"""FedBuff: the mean of the answers in a buffer, each the less the older it is. Biased.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek and Huba, Federated Learning with Buffered
Asynchronous Aggregation, AISTATS 2022 (arXiv 2106.06639), Algorithm 1 and Section 5: the server
steps as soon as K answers have come, along (1/K) sum_k s(tau_k) Delta_k with
s(tau) = (1 + tau)^(-1/2), where tau is the number of its steps since that client was given its
model. In a study that is `policy = "fastest:K"` with `late = "remember"`.
"""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, Weights
from fedcommons.estimators.responder_average import responder_average

EXPONENT = 0.5  # of s(tau) = (1 + tau)^-a


def staleness(arrivals: Arrivals) -> FloatArray:
    """s(tau) of every client whose answer comes now: (..., N); 0 of the others."""
    come = arrivals.on_time | arrivals.late
    if arrivals.age is None:
        return come.astype(np.float64)
    return come * (1.0 + arrivals.age) ** -EXPONENT


def _weigh(arrivals: Arrivals, _p: FloatArray) -> Weights:
    s = staleness(arrivals)
    come = (arrivals.on_time | arrivals.late).sum(axis=-1, keepdims=True)
    each = s * (s.shape[-1] / np.maximum(come, 1))
    return Weights(each * arrivals.on_time, np.zeros(s.shape), each * arrivals.late)


fedbuff = Estimator(
    name="fedbuff",
    caption="FedBuff: the mean of the answers that have come, old ones counting less",
    unbiased=False,
    remembers=False,
    needs_everybody=False,
    needs_p=False,
    weigh=_weigh,
    moment=responder_average.moment,
)
"""N times that mean, on the scale of the full gradient: clients count by their examples, as the
authors' weights by example do. Fast clients fill the buffer more often and count more. Where
nothing is ever late it is `responder_average`."""
