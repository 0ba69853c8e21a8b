"""Bringing inputs to one scale: means and deviations of features, from parts of the data.

Parts may be sites that keep their examples: what they tell of them adds up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray

LARGE, FAR_APART = 10.0, 100.0  # a size that makes steps too long, beside sizes so much smaller
BLOCK = 1 << 20  # numbers that are worked on at a time


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """What inputs are brought to one scale with: (x - mean) / deviation.

    Attributes:
        mean, deviation: of each feature, (D,). The deviation of a constant feature is 1 here.
    """

    mean: FloatArray
    deviation: FloatArray

    def apply(self, x: npt.ArrayLike) -> npt.NDArray[np.floating[Any]]:
        """Inputs, (n, D), on this scale; in their own precision, at least float32."""
        x = np.asarray(x)
        out = np.empty(x.shape, np.result_type(x.dtype, np.float32))
        step = max(1, BLOCK // max(1, len(self.mean)))
        for start in range(0, len(x), step):
            out[start : start + step] = (x[start : start + step] - self.mean) / self.deviation
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """What is known of the features of some examples; that of several parts adds up.

    These are sums of x and of x^2 in another form, in which large values with a small spread lose
    no digits, and a constant has no spread at all.

    Attributes:
        n: how many examples.
        mean: of each feature, (D,).
        squares: the sum of the squared deviations from that mean, (D,).
    """

    n: int
    mean: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, x: npt.NDArray[Any]) -> Moments:
        """Those of inputs, (n, D)."""
        step = max(1, BLOCK // max(1, x.shape[1]))
        parts = (cls._of_block(x[start : start + step]) for start in range(0, len(x), step))
        return total(parts, x.shape[1])

    @classmethod
    def _of_block(cls, x: npt.NDArray[Any]) -> Moments:
        block = x.astype(np.float64)
        first = block[0].copy()
        block -= first  # exactly 0 for a constant
        mean = block.mean(axis=0)
        return cls(len(block), first + mean, ((block - mean) ** 2).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        """Of the examples of both (Chan, Golub and LeVeque, 1983)."""
        if not self.n or not other.n:
            return self if self.n else other
        n, apart = self.n + other.n, other.mean - self.mean
        return Moments(
            n,
            self.mean + apart * (other.n / n),
            self.squares + other.squares + apart**2 * (self.n * other.n / n),
        )

    @property
    def deviation(self) -> FloatArray:
        """The standard deviation of each feature, (D,); 0 for a constant."""
        return np.sqrt(self.squares / max(self.n, 1))

    def scale(self) -> Scale:
        """What brings these examples to mean 0 and standard deviation 1."""
        deviation = self.deviation
        return Scale(self.mean, np.where(deviation > 0, deviation, 1.0))


def total(parts: Iterable[Moments], n_features: int) -> Moments:
    """The moments of all parts together, added in their order."""
    found = Moments(0, np.zeros(n_features), np.zeros(n_features))
    for part in parts:
        found += part
    return found


def far_apart(moments: Moments, names: Sequence[str] = ()) -> str:
    """Which inputs are on very different scales, in words; empty if there are none."""
    size = np.sqrt(moments.mean**2 + moments.squares / max(moments.n, 1))
    there = np.flatnonzero(size > 0)
    if not len(there):
        return ""
    largest, smallest = there[size[there].argmax()], there[size[there].argmin()]
    if size[largest] < max(LARGE, FAR_APART * size[smallest]):
        return ""

    def named(k: int) -> str:
        return names[k] if names else f"feature {k}"

    return (
        f"{named(largest)} is about {size[largest]:.3g} in size, "
        f"{named(smallest)} about {size[smallest]:.3g}"
    )
