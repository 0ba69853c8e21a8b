"""From evidence to a verdict, by the same rules for every claim.

- A *direction* claims that every component is positive. It holds if every one is significant,
  one-sided at .01; it does not hold if one is significantly negative after Holm's correction.
- An *equality* claims that every component is 0 up to a tolerance that counts as the same. It holds
  if every 99 % interval lies within the tolerance; it does not hold if one is significantly
  farther from 0 than the tolerance after Holm's correction.
- *Every round* claims that nothing is ever violated. One violating run is a counterexample; without
  any, it holds if the 99 % Clopper-Pearson bound on the fraction of violating runs is below 10 %.

Significance is Student's. Where all runs give the same number there is no spread to judge by, and
the runs count as signs: n of n on one side have probability 2^-n if either side is as likely.

Everything else is undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedcommons.checks import FloatArray
from fedcommons.intervals import half_width

LEVEL = 0.01
RARE = 0.10
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"


@dataclass(frozen=True, slots=True)
class Component:
    """One number that a claim speaks of: a mean over runs and its standard error."""

    name: str
    difference: float
    sem: float
    runs: int

    @classmethod
    def of(cls, name: str, values: FloatArray) -> Component:
        n = len(values)
        if n > 1 and np.ptp(values) == 0:  # the mean's rounding must not pass for spread
            return cls(name, float(values[0]), 0.0, n)
        sem = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
        return cls(name, float(values.mean()), sem, n)

    @property
    def z(self) -> float:
        """In standard errors; a difference without any spread is infinitely many."""
        if self.sem == 0:
            return float(np.sign(self.difference) * np.inf) if self.difference else 0.0
        return self.difference / self.sem

    def tail(self, side: int) -> float:
        """The one-sided p-value that the mean is positive (side 1) or negative (side -1)."""
        return self._chance_of_more_than(0.0, side)

    def beyond(self, tolerance: float) -> float:
        """The one-sided p-value that the mean is farther from 0 than the tolerance."""
        return self._chance_of_more_than(tolerance, 1 if self.difference > 0 else -1)

    def _chance_of_more_than(self, least: float, side: int) -> float:
        excess = side * self.difference - least
        if np.isnan(self.sem):
            return 1.0
        if self.sem == 0:
            return 0.5**self.runs if excess > 0 else 1.0
        return float(stats.t.sf(excess / self.sem, self.runs - 1))

    @property
    def half(self) -> float:
        """Half of the 95 % interval of the mean, which is what ± is where results are shown."""
        return float(half_width(self.sem, self.runs))

    @property
    def half_width(self) -> float:
        """Half of the 99 % interval of the mean, by which equality is judged.

        Without spread it is the sign test's: between the least and the greatest of n runs lies
        the median with probability 1 - 2^(1-n).
        """
        if self.sem == 0:
            return 0.0 if 0.5 ** (self.runs - 1) <= LEVEL else float("inf")
        return float(stats.t.ppf(1 - LEVEL / 2, self.runs - 1) * self.sem)


def holm(p_values: Sequence[float]) -> FloatArray:
    """Holm's adjusted p-values."""
    p = np.asarray(p_values, float)
    order = np.argsort(p)
    scaled = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return adjusted


def direction(components: Sequence[Component]) -> str:
    """Whether all components are positive."""
    if all(c.tail(1) < LEVEL for c in components):
        return HOLDS
    if (holm([c.tail(-1) for c in components]) < LEVEL).any():
        return FAILS
    return UNDECIDED


def equality(components: Sequence[Component], tolerance: float) -> str:
    """Whether all components are within `tolerance` of 0."""
    if all(abs(c.difference) + c.half_width <= tolerance for c in components):
        return HOLDS
    if (holm([c.beyond(tolerance) for c in components]) < LEVEL).any():
        return FAILS
    return UNDECIDED


def every_round(violating: int, runs: int) -> str:
    """Whether no run ever violates the claim."""
    if violating:
        return FAILS
    return HOLDS if clopper_pearson_upper(violating, runs) < RARE else UNDECIDED


def clopper_pearson_upper(violating: int, runs: int) -> float:
    """The exact one-sided 99 % upper bound on the fraction of violating runs."""
    if violating >= runs:
        return 1.0
    return float(stats.beta.ppf(1 - LEVEL, violating + 1, runs - violating))
