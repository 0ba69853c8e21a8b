"""Drawing the test examples of data that come in one piece."""

from __future__ import annotations

import numpy as np

from fedcommons import partition
from fedcommons.checks import BoolArray, IntArray
from fedcommons.streams import stream


def drawn(test_part: float, sites: IntArray, strata: IntArray, *, seed: int) -> BoolArray:
    """Which examples are for testing: `test_part` of each site's, spread evenly over its strata.

    A site's number is rounded to the nearest, and its strata (labels) get theirs by largest
    remainder. An example that is alone in its site and stratum trains. Every run of a study with
    this seed tests on the same examples.

    Args:
        sites: (M,) the number of each example's site.
        strata: (M,) the number of each example's label, or of what else is to be spread evenly.
    """
    rng = stream(seed, "split")
    test = np.zeros(len(sites), np.bool_)
    for site in np.unique(sites):
        members = np.flatnonzero(sites == site)
        there, counts = np.unique(strata[members], return_counts=True)
        total = int(np.floor(test_part * len(members) + 0.5))
        taken = partition.round_to_sum(counts / len(members), total)
        for stratum, n in zip(there, np.minimum(taken, counts - 1), strict=True):
            mine = members[strata[members] == stratum]
            test[rng.choice(mine, n, replace=False)] = True
    return test
