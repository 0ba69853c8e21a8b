"""Means over runs and their standard errors, without keeping the runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcommons.checks import BoolArray, FloatArray


class RunMoments:
    """Mean and standard error over runs, in one pass and in the order of the runs (Welford).

    Values have curves on the first axis; a run counts only for the curves that did not diverge, and
    for the values that it has where `counts` has their shape.
    """

    def __init__(self, *shape: int) -> None:
        self.n = np.zeros(shape)
        self._mean: FloatArray | float = 0.0
        self._sum2: FloatArray | float = 0.0

    def add(self, values: FloatArray, counts: BoolArray) -> None:
        self.n += counts
        over = self._over(values.ndim)
        n, counts = np.maximum(self.n, 1)[over], counts[over]
        delta = np.where(counts, values - self._mean, 0.0)
        self._mean = self._mean + delta / n
        self._sum2 = self._sum2 + np.where(counts, delta * (values - self._mean), 0.0)

    def _over(self, ndim: int) -> tuple[Any, ...]:
        return (*[slice(None)] * self.n.ndim, *[None] * (ndim - self.n.ndim))

    def _where(self, at_least: int, values: FloatArray | float) -> FloatArray:
        """NaN where there are too few runs."""
        values = np.array(values)
        values[self.n < at_least] = np.nan
        return values

    @property
    def mean(self) -> FloatArray:
        return self._where(1, self._mean)

    @property
    def sem(self) -> FloatArray:
        """NaN for a single run."""
        n = self.n[self._over(np.ndim(self._sum2))]
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._where(2, np.sqrt(np.asarray(self._sum2) / (n - 1) / n))
