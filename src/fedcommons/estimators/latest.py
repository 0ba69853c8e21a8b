"""Latest: everybody's latest answer, whenever it came. Biased by how old answers are."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators.estimator import Arrivals, Estimator, Weights


def _weigh(arrivals: Arrivals, _p: FloatArray) -> Weights:
    """A late answer takes the place of what was remembered in the tick in which it comes."""
    fresh, late = arrivals.on_time.astype(np.float64), arrivals.late.astype(np.float64)
    return Weights(fresh, 1 - fresh - late, late)


latest = Estimator(
    name="latest",
    caption="latest: the server falls back on a missing client’s last answer, as it is",
    unbiased=False,
    remembers=True,
    needs_everybody=False,
    needs_p=False,
    weigh=_weigh,
)
"""sum_i f_i over those who answer and h_i over the others: MIFA (Gu, Huang, Zhang and Huang, Fast
Federated Learning in the Presence of Arbitrary Device Unavailability, NeurIPS 2021, Algorithm 1).
MIFA begins with an answer of everybody: `warm`.

Its error is sum_{i missing} (h_i - f_i), which vanishes as training settles, whatever p is and
however absences hang together. `memory` scales what is new by 1/(1-p_i) and has no bias given the
past; where answers are noisy or far from the last ones (mini-batches, several local steps) that
factor costs more than the bias (docs/federation/unbiased.md)."""
