"""How long a step may be, by how fast each client's gradient changes: client secants.

    l_i = max(KEPT l_i, |g_i(x) - g_i(x_i)| / (n_i |x - x_i|)),   L = sum_i n_i l_i / sum_i n_i,

with x_i the model of the client's answer before and n_i what it holds: both gradients are its own,
so who else answers does not matter. A step on the mean gradient is at most 1/L. Answers may be
late: what counts is the model that each was made at. It is meant for gradients on all examples;
with batches their noise would make L large. Where a client works on a chunk of its examples at a
time, both gradients are of that chunk, and n_i of its own number is the chunk's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedcommons import checks
from fedcommons.checks import FloatArray, IntArray

KEPT = 0.97  # of a client's number at its next answer, if the new secant is less
MOST = 4.0  # times the median of the others' numbers
SKETCH = 64  # numbers in a sketch
AT_ONCE = 1 << 20  # parameters of a model, in a sketch
PLAIN = ("sgd", "momentum")  # server optimizers whose step is in proportion to its rate


@dataclass(frozen=True, slots=True, eq=False)
class Secants:
    """l_i of every client, (N,); NaN where nothing is known."""

    values: FloatArray

    @classmethod
    def start(cls, n_clients: int) -> Secants:
        return cls(np.full(checks.n_clients(n_clients), np.nan))

    def observe(self, secants: FloatArray) -> Secants:
        """With these secants, (N,), of those that answered; NaN for the others."""
        kept = np.where(np.isfinite(self.values), KEPT * self.values, 0.0)
        return replace(
            self,
            values=np.where(np.isfinite(secants), np.maximum(kept, secants), self.values),
        )

    @property
    def bounded(self) -> FloatArray:
        """The same, each at most `MOST` times the median of the others': one cannot end training.

        As long as fewer than two others are known there is no bound.
        """
        found, known = self.values.copy(), np.flatnonzero(np.isfinite(self.values))
        n_others = len(known) - 1
        if n_others < 2:
            return found
        order = np.argsort(self.values[known], kind="stable")
        ascending, places = self.values[known[order]], np.arange(len(known))
        low, high = (n_others - 1) // 2, n_others // 2  # of the others, in their order
        median = (ascending[low + (places <= low)] + ascending[high + (places <= high)]) / 2
        found[known[order]] = np.minimum(ascending, MOST * median)
        return found

    def longest_step(self, weight: FloatArray) -> float:
        """1/L, over the clients of which something is known; infinity while nothing is."""
        values, known = self.bounded, np.isfinite(self.values)
        total = float(weight[known] @ values[known])
        return float(weight[known].sum()) / total if total > 0 else np.inf


def secant(change: float, weight: float, distance: float) -> float:
    """|g(x) - g(x_i)| / (n |x - x_i|); NaN where the models are the same or it holds nothing."""
    return change / (weight * distance) if weight > 0 and distance > 0 else float("nan")


def sketch(model: FloatArray) -> FloatArray:
    """`SKETCH` numbers by which to tell how far models (P,) are from each other: (SKETCH,).

    Each parameter is added, with a random sign, to a random one of them. Differences of sketches
    have the mean square of the differences of models, to a relative deviation of sqrt(2/SKETCH):
    9 % of a distance.
    """
    found, start = np.zeros(SKETCH), 0
    for place, sign in _kept_draws(len(model)) if len(model) <= AT_ONCE else _draws(len(model)):
        part = np.asarray(model[start : start + len(place)], np.float64)
        found += np.bincount(place, part * sign, minlength=SKETCH)
        start += len(place)
    return found


def _draws(n_params: int) -> Iterator[tuple[IntArray, FloatArray]]:
    """Where each parameter goes, and with which sign, some at a time: the same for all models."""
    rng = np.random.default_rng(0)
    for start in range(0, n_params, AT_ONCE):
        n = min(AT_ONCE, n_params - start)
        yield rng.integers(0, SKETCH, n), rng.choice([-1.0, 1.0], n)


@lru_cache(maxsize=2)
def _kept_draws(n_params: int) -> list[tuple[IntArray, FloatArray]]:
    return list(_draws(n_params))


__all__ = ["AT_ONCE", "KEPT", "MOST", "PLAIN", "SKETCH", "Secants", "secant", "sketch"]


def __dir__() -> list[str]:
    return __all__
