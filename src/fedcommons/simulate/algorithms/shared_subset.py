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
"""Averaged like `fedavg`, by the number of examples held. In the paper the subset is the server's
from the start; here it is what the clients share, c of each, and goes to everybody."""
