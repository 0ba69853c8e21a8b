"""What weights follow from beside a comparison of answers: what arrives in each round, and p."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.estimators import Arrivals


@dataclass(frozen=True, slots=True, eq=False)
class Comparing:
    """Of all rounds, in the form in which a round is weighed once its answers are known."""

    arrivals: list[Arrivals]
    probs: list[FloatArray]

    @classmethod
    def of(cls, arrivals: Arrivals, probs: FloatArray) -> Comparing:
        """From what arrives, (T, N), and what the estimator takes for p, (N,) or (T, N)."""
        rounds = range(len(arrivals.on_time))
        each = np.broadcast_to(probs, arrivals.on_time.shape)
        return cls([arrivals.of_round(t) for t in rounds], [each[t] for t in rounds])

    def choose(self, t: int, arrivals: Arrivals, probs: FloatArray) -> None:
        """A round's, where what was seen before it decides whom it asks."""
        self.arrivals[t], self.probs[t] = arrivals, probs
