"""What ± means wherever results are shown: half of a 95 % confidence interval of a mean.

It is Student's: with few runs it is wider than 1.96 standard errors (3.18 with four of them).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray

LEVEL = 0.95


def half_width(sem: npt.ArrayLike, runs: npt.ArrayLike) -> FloatArray:
    """Half of the interval from a mean's standard error and its number of runs; NaN below two."""
    from scipy.special import stdtrit  # slow to import, and only this needs it

    freedom = np.asarray(runs, float) - 1
    quantile = stdtrit(np.maximum(freedom, 1), (1 + LEVEL) / 2)
    return np.where(freedom >= 1, quantile, np.nan) * np.asarray(sem, float)


def mean_and_half(values: FloatArray) -> tuple[float | None, float | None]:
    """The mean over the runs that there are, and half of its interval; None without any."""
    there = values[~np.isnan(values)]
    if len(there) == 0:
        return None, None
    if len(there) == 1:
        return float(there[0]), None
    sem = there.std(ddof=1) / math.sqrt(len(there))
    return float(there.mean()), float(half_width(sem, len(there)))


__all__ = ["LEVEL", "half_width", "mean_and_half"]


def __dir__() -> list[str]:
    return __all__
