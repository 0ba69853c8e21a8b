"""From evidence to a verdict, by the same rules for every claim.

- A *direction* claims that every component is positive. It holds if every one is significant,
  one-sided at .01; it does not hold if one is significantly negative after Holm's correction.
- An *equality* claims that every component is 0 up to a tolerance that counts as the same. It holds
  if every 99 % interval lies within the tolerance; it does not hold if one is significantly
  farther from 0 than the tolerance after Holm's correction.
- *Every round* claims that nothing is ever violated. One violating run is a counterexample; without
  any, it holds if the 99 % Clopper-Pearson bound on the fraction of violating runs is below 10 %.

Everything else is undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedcommons.checks import FloatArray

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
        if np.isnan(self.sem):
            return 1.0
        return float(stats.t.sf(side * self.z, self.runs - 1))

    def beyond(self, tolerance: float) -> float:
        """The one-sided p-value that the mean is farther from 0 than the tolerance."""
        if np.isnan(self.sem):
            return 1.0
        excess = abs(self.difference) - tolerance
        if self.sem == 0:
            return 0.0 if excess > 0 else 1.0
        return float(stats.t.sf(excess / self.sem, self.runs - 1))


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
    half = [
        stats.t.ppf(1 - LEVEL / 2, c.runs - 1) * c.sem if c.runs > 1 else np.inf for c in components
    ]
    if all(abs(c.difference) + h <= tolerance for c, h in zip(components, half, strict=True)):
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
