"""Presence-aware split: each example is computed by exactly one of its holders that are there."""

from __future__ import annotations

from fedcommons import decoding
from fedcommons.simulate.algorithms.algorithm import Algorithm, estimated

presence_split = Algorithm(
    name="presence_split",
    source="this project, for comparison (`fedcommons.decoding`)",
    sharing="proportion-and-copies",
    several_steps=False,
    batches=False,
    estimators=False,
    hold=lambda setup: setup.shares(),
    weigh=estimated,
    examples=decoding.presence_split,
)
"""g^ = sum_j g_j / (1 - prod_i p_i) over the examples of which a holder is there. It takes for
known who will answer when the round begins, and cannot go with a memory of each client: what a
client answers depends on who else is there."""
