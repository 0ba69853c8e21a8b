"""FedAsync: every answer mixes the model that its client reached into the server's. Biased.

Xie, Koyejo and Gupta, Asynchronous Federated Optimization, OPT 2020 (arXiv 1903.03934), Algorithm
1 with polynomial staleness: x <- (1 - alpha_t) x + alpha_t x_i, with alpha_t = alpha s(t - tau) and
s(t - tau) = (t - tau + 1)^(-a), where x_i is what client i made of x_tau. In a study alpha is
`server_rate`, and each answer by itself is `policy = "fastest:1"` with `late = "remember"`.

x_i = x_tau - eta_i sum_k g_ik, so that one answer moves the server by

    -alpha_t (x - x_tau) - alpha_t eta_i sum_k g_ik:

it also takes back part of what has happened since x_tau. That part is the weights' `back`.
"""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, Weights
from fedcommons.estimators.fedbuff import staleness
from fedcommons.estimators.responder_average import responder_average


def _weigh(arrivals: Arrivals, _p: FloatArray) -> Weights:
    """Of several at once the mean: mixed one by one, their order would decide.

    N f_i / M is the client's mean gradient if all hold alike; others count by their examples.
    """
    s = staleness(arrivals)
    come = (arrivals.on_time | arrivals.late).sum(axis=-1, keepdims=True)
    each = s / np.maximum(come, 1)
    N = s.shape[-1]
    late = each * arrivals.late
    return Weights(N * each * arrivals.on_time, np.zeros(s.shape), N * late, back=late)


fedasync = Estimator(
    name="fedasync",
    caption="FedAsync: a late answer takes back part of what has happened since it was asked",
    unbiased=False,
    remembers=False,
    needs_everybody=False,
    needs_p=False,
    weigh=_weigh,
    moment=responder_average.moment,
    anchors=True,
)
