"""Coded gradient descent: the paper's algorithm, with any code and any estimator."""

from __future__ import annotations

from fedcommons.simulate.algorithms.algorithm import Algorithm, estimated

coded_gd = Algorithm(
    name="coded_gd",
    source="Makkonen, Niemelä, Hollanti, Kas Hanna, arXiv 2404.03524v1, Section III-B",
    sharing="proportion-and-copies",
    several_steps=False,
    batches=True,
    estimators=True,
    hold=lambda setup: setup.shares(),
    weigh=estimated,
)
"""f_i = sum_j b_ij g_j, and the estimate is sum_i I_i f_i / (1 - p_i) (eq. 3)."""
