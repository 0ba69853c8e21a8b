"""What frameworks do by default: N times the mean of the answers that arrived. Biased."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, SecondMoment, Weights


def _weigh(arrivals: Arrivals, _p: FloatArray) -> Weights:
    answered = arrivals.on_time
    n_clients = answered.shape[-1]
    n_answers = answered.sum(axis=-1, keepdims=True)
    return Weights(answered * n_clients / np.maximum(n_answers, 1), np.zeros(answered.shape))


def _moment(p: FloatArray) -> SecondMoment | None:
    """Known if all p_i are equal.

    E|g^|^2 = E[u_i u_k] |g|^2 + (E[u_i^2] - E[u_i u_k]) sum_i |f_i|^2, for any i != k.
    """
    if np.ptp(p) > 0:
        return None
    n_clients = len(p)
    k = np.arange(1, n_clients + 1)  # how many answer
    chance = _binomial(n_clients, 1 - p[0])
    own = float((chance * n_clients / k).sum())
    pair = 0.0
    if n_clients > 1:
        pair = float((chance * n_clients * (k - 1) / (k * (n_clients - 1))).sum())
    return SecondMoment(pair, np.full(n_clients, own - pair))


def _binomial(n: int, q: float) -> FloatArray:
    """The probabilities of 1, ..., n successes in n trials, q > 0."""
    # Slow to import, and only this needs it; scipy.stats would be slower still.
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(1, n + 1)
    choices = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.exp(choices + xlogy(k, q) + xlog1py(n - k, -q))


responder_average = Estimator(
    name="responder_average",
    caption="average over those who answered",
    unbiased=False,
    remembers=False,
    needs_everybody=False,
    needs_p=False,
    weigh=_weigh,
    moment=_moment,
)
"""For comparison. Its mean is (1 - p^N) g if all p_i are equal; with unequal p_i it favours the
clients that answer more often."""
