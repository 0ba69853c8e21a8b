"""Federated averaging: no sharing, the mean of those who answered."""

from __future__ import annotations

from fedcommons.simulate.algorithms.algorithm import Algorithm, averaged, own_examples

fedavg = Algorithm(
    name="fedavg",
    source="McMahan, Moore, Ramage, Hampson, Agüera y Arcas, AISTATS 2017, Algorithm 1",
    sharing="none",
    several_steps=True,
    batches=True,
    estimators=False,
    hold=own_examples,
    weigh=averaged,
)
"""w <- sum_S n_i w_i / sum_S n_i over the clients S that answered."""
