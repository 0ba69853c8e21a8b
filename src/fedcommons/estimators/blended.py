"""Blended: latest answers and the average of who answers, as far as each foretells. Biased."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, Weights
from fedcommons.estimators.filled import filled

UNKNOWN = 1.0  # l where a round shows nothing: one lopsided answer would be taken for all


def _weigh(arrivals: Arrivals, p: FloatArray) -> Weights:
    """l times those of `filled`, and 1 - l times those of the average by share over who answers."""
    latest, here = filled.weigh(arrivals, p), arrivals.on_time
    W = np.ones(here.shape[-1]) if arrivals.shares is None else arrivals.shares
    counted = np.maximum(W, 0)  # an owner-corrected code may leave a client below 0
    present = (counted * here).sum(axis=-1, keepdims=True)
    average = np.divide(counted.sum(), present, out=np.zeros_like(present), where=present > 0)
    part = np.where(present > 0, _part(arrivals), 1.0)
    late = None if latest.late is None else part * latest.late
    fresh = part * latest.fresh + (1 - part) * average * here
    return Weights(fresh, part * latest.remembered, late)


def _part(arrivals: Arrivals) -> float:
    """l."""
    found = arrivals.comparison
    if found is None or not found.spread > 0:
        return UNKNOWN
    return float(np.clip(found.agreement / found.spread, 0, 1))


blended = Estimator(
    name="blended",
    caption="blended: a missing client’s last answer and the average of who answers, each as far "
    "as it foretells",
    unbiased=False,
    remembers=True,
    needs_everybody=False,
    needs_p=False,
    weigh=_weigh,
    moment=lambda _p: None,
    compares=True,
)
"""A missing client is taken to answer W_i (l b_i + (1 - l) a): b_i its own last answer per unit of
share, a the mean by share of who answers. One that was never heard counts as the mean of all these
and of who answers. Summed up, with h_i = f_i for those who are here, that is

    l sum_i W_i / sum_heard W_i sum_heard h_i + (1 - l) sum_i W_i / sum_here W_i sum_here f_i:

l times `filled`, and 1 - l times what federated averaging makes of the answers.

l is measured in each round where the truth is known, at the clients that answer: it is the one for
which their own last answers and the mean of the *others* foretell theirs with the least squared
error (`Comparison`), clipped to [0, 1]; 1 where fewer than two answer, or nobody who was heard
before. Nobody chooses it, no p is needed, and nothing is kept between rounds. It assumes that who
answers is foretold as well as who does not.

Take f_i = W_i (x + s_i + e_i), where sites differ by s_i for good and by e_i anew in each round, of
variances S and E, and h_i = W_i (x - z + s_i + e'_i), older by a drift z. Of n clients, alike in W,

    l = (S + (S + E)/(n - 1)) / (S + (S + E)/(n - 1) + |z|^2 + E)

in the limit of many parameters. Alike sites (S = 0): l is at most 1/n, and the estimate is near the
average. Lopsided sites (S large): l is near 1, and the estimate near `filled`. The errors of what
is remembered partly cancel between clients, those of the mean do not: l errs on the side of the
average (docs/decisions/0009).

The nearest published method is FedStale (Rodio and Neglia, FedStale: leveraging stale client
updates in federated learning, arXiv 2405.04171, 2024): sum_i h_i + sum_here (f_i - h_i)/(1-p_i)
with every h_i times beta, one number for a whole training, unbiased for known p. There beta = 0 is
the coded sum and 1 is `memory`. Here the two ends are federated averaging and `filled`, which stay
on the scale of the whole whoever answers; l follows from each round's answers; no p is used; the
estimate is biased, by how far missing clients' answers are from their forecasts.
"""
