"""A globally shared subset: every client trains on its own data and on all that is shared."""

from __future__ import annotations

from fedcommons.simulate.algorithms.algorithm import Algorithm, averaged, own_and_shared

shared_subset = Algorithm(
    name="shared_subset",
    source="Zhao, Li, Lai, Suda, Civin, Chandra, arXiv 1806.00582, Section 4",
    sharing="proportion",
    several_steps=True,
    batches=True,
    estimators=False,
    hold=own_and_shared,
    weigh=averaged,
)
"""Averaged like `fedavg`, by the number of examples held. It departs from the paper in three ways.
There the subset G is the server's from the start; here it is what the clients share, c of each.
There every client gets a random portion alpha of G; here alpha = 1, all of it. There training
begins from a warm-up model trained on G; here it begins where every other algorithm's does."""
