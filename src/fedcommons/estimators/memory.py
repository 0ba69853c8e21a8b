"""Memory: the server falls back on a missing client's last answer, without bias."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, SecondMoment, Weights
from fedcommons.stragglers import odds


def _weigh(arrivals: Arrivals, p: FloatArray) -> Weights:
    """A client that was not asked, since it owes an answer, counts as what is remembered of it."""
    fresh = arrivals.on_time / (1 - p)
    return Weights(fresh, 1 - fresh)


def _moment(p: FloatArray) -> SecondMoment:
    one = np.ones(len(p))
    return SecondMoment(1.0, odds(p, len(p)), noise=(one, -one))


memory = Estimator(
    name="memory",
    caption="memory: the server falls back on a missing client’s last answer, without bias",
    unbiased=True,
    remembers=True,
    needs_everybody=False,
    needs_p=True,
    weigh=_weigh,
    moment=_moment,
)
"""sum_i h_i + sum_i I_i/(1-p_i) (f_i - h_i): only the change since the last answer is noisy.

It is FedVARP (Jhunjhunwala, Sharma, Nagarkatti and Joshi, FedVARP: Tackling the Variance Due to
Partial Client Participation in Federated Learning, UAI 2022, Algorithm 1) with known probabilities
1 - p_i where that has |S|/N, a set S of clients drawn by the server. It is unbiased given the past
if stragglers are independent of it, and needs no extra communication. Its variance,
sum_i p_i/(1-p_i) |f_i - h_i|^2, vanishes as training settles, if local gradients are full-batch and
steps are small. What is remembered depends on who answered, so with correlated absences it is
biased more than the coded sum (docs/deviations.md, 11)."""
