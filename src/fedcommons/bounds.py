"""How large an answer may be: a bound by what the client has, what others send, and past rounds.

A client's answer f_i sums gradients with shares that sum to W_i in size, so |f_i|/W_i is the size
of a mean gradient, whatever the client holds. Honest clients differ in it, with lopsided data or
long steps by several times; a client that wants to move the model further than all others has to
differ by more. An answer may be `factor` times as large per unit of share as the median client's,
or as much more as clients differ: e^(8 D) times, D the median deviation of the logarithms. What is
larger keeps its direction. Median and deviation are over clients, of the largest of each one's last
answers: clients that are away do not lower them, and fewer than half of them cannot raise them far.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.errors import ArgumentError

FACTOR = 4.0
SPREAD = 8.0  # deviations
LAST = 3  # answers of each client
LEAST = 3  # clients of which something is known, for a median to mean anything
LARGEST_LOG = 700.0  # of what a float can be


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """The sizes per unit of share of each client's last answers, (N, LAST); NaN where unknown."""

    last: FloatArray

    @classmethod
    def start(cls, n_clients: int) -> Sizes:
        return cls(np.full((checks.n_clients(n_clients), LAST), np.nan))

    def limit(self, factor: float = FACTOR) -> float | None:
        """The most per unit of share; None while too few clients are known."""
        if not factor > 1:
            raise ArgumentError(f"factor must be above 1, got {factor}")
        known = self.last[~np.isnan(self.last).all(axis=1)]
        largest = np.nanmax(known, axis=1) if len(known) else np.zeros(0)
        largest = largest[(largest > 0) & np.isfinite(largest)]
        if len(largest) < LEAST:
            return None
        logs = np.log(largest)
        middle = np.median(logs)
        deviation = np.median(np.abs(logs - middle))
        return float(np.exp(min(middle + max(np.log(factor), SPREAD * deviation), LARGEST_LOG)))

    def observe(self, per_unit: npt.ArrayLike, answered: BoolArray) -> Sizes:
        """With this round's answers of those who answered."""
        found = self.last.copy()
        found[answered, 1:] = self.last[answered, :-1]
        found[answered, 0] = np.asarray(per_unit, np.float64)[answered]
        return replace(self, last=found)

    def factors(self, per_unit: npt.ArrayLike, factor: float = FACTOR) -> FloatArray:
        """What each answer is to be multiplied by: 1 where it is within the bound, (N,).

        `per_unit` has this round's sizes; these are to be in `last` already.
        """
        sizes, limit = np.asarray(per_unit, np.float64), self.limit(factor)
        if limit is None:
            return np.ones(len(sizes))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(sizes > limit, limit / sizes, 1.0)


def per_unit(norms: npt.ArrayLike, weights: npt.ArrayLike) -> FloatArray:
    """|f_i|/W_i, (N,): 0 for 0 of nothing, infinity for something of nothing."""
    norms, weights = np.asarray(norms, np.float64), np.asarray(weights, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(norms > 0, norms / weights, 0.0)


__all__ = ["FACTOR", "LAST", "LEAST", "SPREAD", "Sizes", "per_unit"]


def __dir__() -> list[str]:
    return __all__
