"""Exact gradient codes (Tandon, Lei, Dimakis, Karampatziakis, ICML 2017).

A code is a matrix B, (N, N): client i answers the combination sum_k B_ik G_k of the gradient sums
G_k of the blocks of data, here what each client k owned before everything was replicated. From the
answers of S the full gradient is sum_{i in S} a_i f_i for any a with a B_S = 1. Every code here
has such an a whenever at most s = d clients are missing. Where there is none the server does
nothing in that round and the model stays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from fedcommons.checks import BoolArray, FloatArray
from fedcommons.estimators import Arrivals, Estimator, Weights
from fedcommons.simulate.algorithms.algorithm import Algorithm, Setup

SAME = 1e-6  # how far a B_S may be from 1 and count as exact


def exact_code(
    name: str, source: str, matrix: Callable[[int, int, np.random.Generator], FloatArray]
) -> Algorithm:
    """The algorithm of a family of codes, `matrix(N, s, rng)`."""

    def hold(setup: Setup) -> csr_array:
        B = matrix(setup.n_clients, setup.copies, setup.rng)
        held = csr_array(B)[:, setup.owner]  # never dense: (N, M)
        held.sort_indices()
        return csr_array(held)

    return Algorithm(
        name=name,
        source=source,
        sharing="everything",
        several_steps=False,
        batches=False,  # replicas must compute the same
        estimators=False,
        hold=hold,
        weigh=_weigh,
    )


def _weigh(_estimator: Estimator, held: csr_array, arrivals: Arrivals, _p: FloatArray) -> Weights:
    """The decoding of each round: examples with the same column of weights are of one block."""
    answered = arrivals.on_time
    mark = np.random.default_rng(0).normal(size=held.shape[0]) @ held  # equal for equal columns
    _, one_of_each = np.unique(mark, return_index=True)
    columns = np.unique(held[:, one_of_each].toarray(), axis=1)
    patterns, which = np.unique(answered, axis=0, return_inverse=True)
    fresh = np.array([decoding(columns, pattern) for pattern in patterns])[which.ravel()]
    return Weights(fresh, np.zeros(answered.shape))


def decoding(B: FloatArray, answered: BoolArray) -> FloatArray:
    """a with a B_S = 1 and a = 0 outside S, (N,); all 0 if there is none."""
    a = np.zeros(len(B))
    if not answered.any():
        return a
    system = B[answered].T
    found = np.linalg.lstsq(system, np.ones(len(system)), rcond=None)[0]
    if np.abs(system @ found - 1).max(initial=0) <= SAME:
        a[answered] = found
    return a
