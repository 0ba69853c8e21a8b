"""Stochastic gradient coding: every example at d + 1 clients, whoever owned it."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from fedcommons.simulate.algorithms.algorithm import Algorithm, Setup, estimated
from fedcommons.subsets import random_subsets


def _spread(setup: Setup) -> csr_array:
    """Each example at a uniformly random subset of d + 1 clients, with the weight 1/(d + 1)."""
    M, holders = len(setup.owner), setup.copies + 1
    rows = random_subsets(M, holders, setup.n_clients, rng=setup.rng)
    weights = np.full(M * holders, 1 / holders)
    columns = np.repeat(np.arange(M), holders)
    return csr_array((weights, (rows.ravel(), columns)), shape=(setup.n_clients, M))


stochastic_gradient_coding = Algorithm(
    name="stochastic_gradient_coding",
    source="Bitar, Wootters, El Rouayheb, IEEE JSAIT 1(1), 2020",
    sharing="everything",
    several_steps=False,
    batches=True,
    estimators=False,
    hold=_spread,
    weigh=estimated,
)
"""Scaled by 1/(1 - p), as `coded_gd`. The paper's placement is pairwise balanced; random subsets
are so in expectation."""
