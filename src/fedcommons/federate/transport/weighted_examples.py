"""What a training function is given: the examples that a site holds, and the weight of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.batches import batches
from fedcommons.checks import FloatArray, IntArray

Batch = tuple[npt.NDArray[Any], IntArray, FloatArray]


@dataclass(frozen=True, slots=True)
class WeightedExamples:
    """Examples with weights, and how many local steps are to be made on batches of what size."""

    x: npt.NDArray[Any]
    y: IntArray
    weight: FloatArray
    local_steps: int = 1
    batch_size: int = 0
    rng: np.random.Generator | None = None

    def batches(self) -> Iterator[Batch]:
        """One batch for every local step: all examples, or `batch_size` at random."""
        n = len(self.y)
        for rows in batches(n, self.batch_size or None, self.local_steps, rng=self.rng):
            if len(rows) == n:  # without a copy
                yield self.x, self.y, self.weight
            else:
                yield self.x[rows], self.y[rows], self.weight[rows]
