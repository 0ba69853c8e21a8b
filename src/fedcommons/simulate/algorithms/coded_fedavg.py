"""Coded federated averaging: several local steps on the coded loss, the same estimators."""

from __future__ import annotations

from fedcommons.simulate.algorithms.algorithm import Algorithm, estimated

coded_fedavg = Algorithm(
    name="coded_fedavg",
    source="this project: arXiv 2404.03524v1 names it as future work",
    sharing="proportion-and-copies",
    several_steps=True,
    batches=True,
    estimators=True,
    hold=lambda setup: setup.shares(),
    weigh=estimated,
)
"""Every client descends the mean over what it holds of b_ij n_i / W_i times loss, with W_i the sum
of its shares, and answers W_i times the way it went; the server sums the answers like gradients.
One full step is `coded_gd`. A federation's clients do the same (transport/coded_answer.py)."""
